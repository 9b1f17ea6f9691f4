// Custom operators from classes: what a class reads and writes through ONNX Runtime, and how ONNX Runtime calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "onnxruntime_api.hpp"
#include "thread_pool.hpp"
#include "validate.hpp"

namespace dragoman {

// Releases a status, and throws its message.
inline void check(const OrtApi& api, OrtStatus* status) {
  if (status == nullptr) return;
  const std::unique_ptr<OrtStatus, void (*)(OrtStatus*)> released(status, api.ReleaseStatus);
  throw std::runtime_error(std::string("ONNX Runtime: ") + api.GetErrorMessage(status));
}

// Releases a status; whether the call went well.
inline bool succeeded(const OrtApi& api, OrtStatus* status) {
  if (status != nullptr) api.ReleaseStatus(status);
  return status == nullptr;
}

using TensorInfo = std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)>;

constexpr std::size_t kLargestRank = 4;

// A tensor's place in memory and its sizes; without data where an optional input is missing.
struct Tensor {
  void* data = nullptr;
  std::int64_t sizes[kLargestRank] = {1, 1, 1, 1};
  std::size_t rank = 0;

  template <class Number>
  Number* as() const {
    return static_cast<Number*>(data);
  }
};

// The attributes of a node, read when its kernel is made.
class Attributes {
 public:
  Attributes(const OrtApi& api, const OrtKernelInfo* info) : api_(api), info_(info) {}

  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) const {
    std::int64_t value = 0;
    check(api_, api_.KernelInfoGetAttribute_int64(info_, name, &value));
    return size_between(least, value, most, name);
  }

  std::int64_t integer_or(std::int64_t otherwise, const char* name, std::int64_t least, std::int64_t most) const {
    std::int64_t value = 0;
    if (!succeeded(api_, api_.KernelInfoGetAttribute_int64(info_, name, &value))) return otherwise;
    return size_between(least, value, most, name);
  }

  float real(const char* name) const {
    float value = 0;
    check(api_, api_.KernelInfoGetAttribute_float(info_, name, &value));
    return finite(name, value);
  }

  float real_or(float otherwise, const char* name) const {
    float value = 0;
    if (!succeeded(api_, api_.KernelInfoGetAttribute_float(info_, name, &value))) return otherwise;
    return finite(name, value);
  }

 private:
  static float finite(const char* name, float value) {
    if (!(value - value == 0)) throw std::invalid_argument(std::string(name) + " must be a finite number");
    return value;
  }

  const OrtApi& api_;
  const OrtKernelInfo* info_;
};

// The inputs and outputs of a call.
class Context {
 public:
  Context(const OrtApi& api, OrtKernelContext* context) : api_(api), context_(context) {}

  Tensor input(std::size_t index, std::size_t rank) const {
    const Tensor tensor = optional_input(index, rank);
    if (tensor.rank == 0) throw std::invalid_argument("input " + std::to_string(index) + " is missing");
    return tensor;
  }

  Tensor optional_input(std::size_t index, std::size_t rank) const {
    const OrtValue* value = nullptr;
    check(api_, api_.KernelContext_GetInput(context_, index, &value));
    if (value == nullptr) return Tensor{};
    const Tensor tensor = described(value);
    if (tensor.rank != rank)
      throw std::invalid_argument("input " + std::to_string(index) + " has " + std::to_string(tensor.rank) +
                                  " dimensions instead of " + std::to_string(rank));
    return tensor;
  }

  template <class Number>
  Number* output(std::size_t index, std::int64_t rows, std::int64_t columns) const {
    const std::int64_t sizes[2] = {rows, columns};
    return static_cast<Number*>(output_data(index, sizes, 2));
  }

  // Null where the output is not used.
  void* output_data(std::size_t index, const std::int64_t* sizes, std::size_t rank) const {
    OrtValue* value = nullptr;
    check(api_, api_.KernelContext_GetOutput(context_, index, sizes, rank, &value));
    return value == nullptr ? nullptr : data_of(value);
  }

  // Calls `body(0)` … `body(count - 1)`, in several threads when that takes one thread `nanoseconds` worth sharing.
  template <class Body>
  void each(std::int64_t count, std::int64_t nanoseconds, const Body& body) const {
    const auto some = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t index = begin; index < end; ++index) body(index);
    };
    if (nanoseconds < kWorthSharing)
      some(0, count);
    else
      ThreadPool::instance().parallel_for(count, some);
  }

 private:
  // A helper sees it within a microsecond; but what it writes lies in its own cache, and has to come from there.
  static constexpr std::int64_t kWorthSharing = 8000;

  void* data_of(const OrtValue* value) const {
    void* data = nullptr;
    check(api_, api_.GetTensorMutableData(const_cast<OrtValue*>(value), &data));
    return data;
  }

  Tensor described(const OrtValue* value) const {
    Tensor tensor;
    tensor.data = data_of(value);
    OrtTensorTypeAndShapeInfo* made = nullptr;
    check(api_, api_.GetTensorTypeAndShape(value, &made));
    const TensorInfo info(made, api_.ReleaseTensorTypeAndShapeInfo);
    check(api_, api_.GetDimensionsCount(info.get(), &tensor.rank));
    if (tensor.rank <= kLargestRank) check(api_, api_.GetDimensions(info.get(), tensor.sizes, tensor.rank));
    return tensor;
  }

  const OrtApi& api_;
  OrtKernelContext* context_;
};

// A size in a graph: a number, or a name for one that only a call has; neither where nothing is known.
struct Dimension {
  std::int64_t size = -1;
  std::string name;

  bool is_known() const { return size >= 0 || !name.empty(); }
};

// Shapes of a node's inputs and outputs, as far as the graph tells them.
class Shapes {
 public:
  Shapes(const OrtApi& api, OrtShapeInferContext* context) : api_(api), context_(context) {}

  Dimension size_of(std::size_t input, std::size_t axis) const {
    OrtTensorTypeAndShapeInfo* info = nullptr;  // the context owns it
    std::size_t rank = 0;
    if (!succeeded(api_, api_.ShapeInferContext_GetInputTypeShape(context_, input, &info)) || info == nullptr) return {};
    check(api_, api_.GetDimensionsCount(info, &rank));
    if (axis >= rank || rank > kLargestRank) return {};
    std::int64_t sizes[kLargestRank] = {};
    const char* names[kLargestRank] = {};
    check(api_, api_.GetDimensions(info, sizes, rank));
    check(api_, api_.GetSymbolicDimensions(info, names, rank));
    return {sizes[axis], names[axis] == nullptr ? "" : names[axis]};
  }

  // An attribute of whole numbers; nothing where it is missing.
  std::optional<std::int64_t> integer(const char* name) const {
    const OrtOpAttr* attribute = nullptr;
    if (!succeeded(api_, api_.ShapeInferContext_GetAttribute(context_, name, &attribute))) return std::nullopt;
    std::int64_t value = 0;
    std::size_t written = 0;
    check(api_, api_.ReadOpAttr(attribute, AttributeType::kInt, &value, sizeof value, &written));
    return value;
  }

  // Sets nothing where a size is not known.
  template <std::size_t kRank>
  void set(std::size_t output, ElementType type, const Dimension (&sizes)[kRank]) const {
    std::int64_t numbers[kRank];
    const char* names[kRank];
    for (std::size_t axis = 0; axis < kRank; ++axis) {
      if (!sizes[axis].is_known()) return;
      numbers[axis] = sizes[axis].size;
      names[axis] = sizes[axis].name.c_str();
    }
    OrtTensorTypeAndShapeInfo* made = nullptr;
    check(api_, api_.CreateTensorTypeAndShapeInfo(&made));
    const TensorInfo info(made, api_.ReleaseTensorTypeAndShapeInfo);
    check(api_, api_.SetTensorElementType(info.get(), type));
    check(api_, api_.SetDimensions(info.get(), numbers, kRank));
    check(api_, api_.SetSymbolicDimensions(info.get(), names, kRank));
    check(api_, api_.ShapeInferContext_SetOutputTypeShape(context_, output, info.get()));
  }

 private:
  const OrtApi& api_;
  OrtShapeInferContext* context_;
};

// An input whose memory is an output's.
struct Shared {
  int input, output;
};

// What a class may leave out: `kRequired` and `kRequiredOutputs` (all), `kAlias` and `kInPlace` (none).
template <class Kernel, class = void>
struct InputsRequired : std::integral_constant<std::size_t, std::size(Kernel::kInputs)> {};
template <class Kernel>
struct InputsRequired<Kernel, std::void_t<decltype(Kernel::kRequired)>>
    : std::integral_constant<std::size_t, Kernel::kRequired> {};

template <class Kernel, class = void>
struct OutputsRequired : std::integral_constant<std::size_t, std::size(Kernel::kOutputs)> {};
template <class Kernel>
struct OutputsRequired<Kernel, std::void_t<decltype(Kernel::kRequiredOutputs)>>
    : std::integral_constant<std::size_t, Kernel::kRequiredOutputs> {};

template <class Kernel, class = void>
struct HasAlias : std::false_type {};
template <class Kernel>
struct HasAlias<Kernel, std::void_t<decltype(Kernel::kAlias)>> : std::true_type {};

template <class Kernel, class = void>
struct HasInPlace : std::false_type {};
template <class Kernel>
struct HasInPlace<Kernel, std::void_t<decltype(Kernel::kInPlace)>> : std::true_type {};

// Calls `body`; what it throws becomes a status that names the operator, because nothing may be thrown through ONNX Runtime.
template <class Body>
OrtStatus* guarded(const OrtApi& api, const char* name, const Body& body) noexcept {
  const auto status = [&](OrtErrorCode code, const char* what) noexcept -> OrtStatus* {
    try {
      return api.CreateStatus(code, (std::string(name) + ": " + what).c_str());
    } catch (...) {
      return api.CreateStatus(OrtErrorCode::kFail, name);  // no memory for more
    }
  };
  try {
    body();
    return nullptr;
  } catch (const std::invalid_argument& error) {
    return status(OrtErrorCode::kInvalidArgument, error.what());
  } catch (const std::exception& error) {
    return status(OrtErrorCode::kFail, error.what());
  } catch (...) {
    return status(OrtErrorCode::kFail, "unknown error");
  }
}

// An operator from a class with `kName`, `kInputs`, `kOutputs`, `infer(Shapes)`, a constructor from Attributes and
// `compute(Context)`.
template <class Kernel>
struct Operator : OrtCustomOp {
  const OrtApi& api;

  struct Instance {
    const OrtApi& api;
    Kernel kernel;
  };

  explicit Operator(const OrtApi& given) : api(given) {
    GetName = [](const OrtCustomOp*) noexcept { return Kernel::kName; };
    GetExecutionProviderType = [](const OrtCustomOp*) noexcept -> const char* { return nullptr; };  // the CPU
    GetInputTypeCount = [](const OrtCustomOp*) noexcept { return std::size(Kernel::kInputs); };
    GetInputType = [](const OrtCustomOp*, std::size_t index) noexcept { return Kernel::kInputs[index]; };
    GetOutputTypeCount = [](const OrtCustomOp*) noexcept { return std::size(Kernel::kOutputs); };
    GetOutputType = [](const OrtCustomOp*, std::size_t index) noexcept { return Kernel::kOutputs[index]; };
    GetInputCharacteristic = [](const OrtCustomOp*, std::size_t index) noexcept {
      return index < InputsRequired<Kernel>::value ? Presence::kRequired : Presence::kOptional;
    };
    GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t index) noexcept {
      return index < OutputsRequired<Kernel>::value ? Presence::kRequired : Presence::kOptional;
    };
    GetInputMemoryType = [](const OrtCustomOp*, std::size_t) noexcept { return 0; };  // the device's own
    GetStartVersion = [](const OrtCustomOp*) noexcept { return 1; };
    GetEndVersion = [](const OrtCustomOp*) noexcept { return 0x7fffffff; };
    CreateKernelV2 = [](const OrtCustomOp*, const OrtApi* with, const OrtKernelInfo* info, void** made) noexcept {
      return guarded(*with, Kernel::kName, [&] { *made = new Instance{*with, Kernel(Attributes(*with, info))}; });
    };
    KernelComputeV2 = [](void* made, OrtKernelContext* context) noexcept {
      const auto& instance = *static_cast<const Instance*>(made);
      return guarded(instance.api, Kernel::kName, [&] { instance.kernel.compute(Context(instance.api, context)); });
    };
    KernelDestroy = [](void* made) noexcept { delete static_cast<Instance*>(made); };
    InferOutputShapeFn = [](const OrtCustomOp* op, OrtShapeInferContext* context) noexcept {
      const OrtApi& with = static_cast<const Operator*>(op)->api;
      return guarded(with, Kernel::kName, [&] { Kernel::infer(Shapes(with, context)); });
    };
    share_memory();
  }

 private:
  void share_memory() {
    // The arrays are read only, though ONNX Runtime takes pointers that it could write through.
    const auto nothing = [](int*, int*) noexcept {};
    if constexpr (HasAlias<Kernel>::value) {
      GetAliasMap = [](int** inputs, int** outputs) noexcept {
        static Shared shared = Kernel::kAlias;
        *inputs = &shared.input;
        *outputs = &shared.output;
        return std::size_t{1};
      };
      ReleaseAliasMap = nothing;
    }
    if constexpr (HasInPlace<Kernel>::value) {
      GetMayInplace = [](int** inputs, int** outputs) noexcept {
        static Shared shared = Kernel::kInPlace;
        *inputs = &shared.input;
        *outputs = &shared.output;
        return std::size_t{1};
      };
      ReleaseMayInplace = nothing;
    }
  }
};

}  // namespace dragoman
