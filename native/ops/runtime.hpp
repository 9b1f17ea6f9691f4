// The part of ONNX Runtime's C interface that an operator of our own needs. The interface is a table of functions whose
// order never changes, so a library built against this file works with every ONNX Runtime from 1.17 on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "team.hpp"

namespace dragoman {

struct OrtStatus;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtValue;
struct OrtShape;
struct OrtDomain;
struct OrtSessionOptions;
struct OrtApi;

constexpr std::uint32_t kApiVersion = 17;

enum class Type : int { kFloat = 1, kInt8 = 3, kInt32 = 6, kInt64 = 7 };

// Places in the table.
enum class Call : std::size_t {
  kCreateStatus = 0,
  kCreateDomain = 26,
  kAddToDomain = 27,
  kAddDomain = 28,
  kTensorData = 51,
  kDimensionCount = 61,
  kDimensions = 62,
  kShape = 65,
  kFloatAttribute = 85,
  kIntAttribute = 86,
  kInput = 90,
  kOutput = 91,
  kReleaseShape = 99,
};

template <class Function>
Function* function_of(const OrtApi* api, Call call) {
  return reinterpret_cast<Function*>(reinterpret_cast<void* const*>(api)[static_cast<std::size_t>(call)]);
}

// Calls a function that says how it went, and throws when it did not go well.
template <class... Given, class... Arguments>
void check(const OrtApi* api, Call call, OrtStatus* (*)(Given...), Arguments... arguments) {
  if (function_of<OrtStatus*(Given...)>(api, call)(arguments...) != nullptr)
    throw std::runtime_error("ONNX Runtime refused call " + std::to_string(static_cast<std::size_t>(call)));
}

// A tensor's place in memory and its sizes; at most four of them.
struct Tensor {
  void* data = nullptr;
  std::int64_t sizes[4] = {1, 1, 1, 1};
  std::size_t rank = 0;

  template <class Number>
  Number* as() const {
    return static_cast<Number*>(data);
  }
};

// What a kernel is told once.
class Attributes {
 public:
  Attributes(const OrtApi* api, const OrtKernelInfo* info) : api_(api), info_(info) {}

  std::int64_t integer(const char* name) const {
    std::int64_t value = 0;
    check(api_, Call::kIntAttribute, static_cast<OrtStatus* (*)(const OrtKernelInfo*, const char*, std::int64_t*)>(nullptr),
          info_, name, &value);
    return value;
  }

  float real(const char* name) const {
    float value = 0;
    check(api_, Call::kFloatAttribute, static_cast<OrtStatus* (*)(const OrtKernelInfo*, const char*, float*)>(nullptr),
          info_, name, &value);
    return value;
  }

 private:
  const OrtApi* api_;
  const OrtKernelInfo* info_;
};

// What a kernel is told at every call.
class Context {
 public:
  Context(const OrtApi* api, OrtKernelContext* context) : api_(api), context_(context) {}

  Tensor input(std::size_t index, std::size_t rank) const {
    const Tensor tensor = optional_input(index, rank);
    if (tensor.rank == 0) throw std::invalid_argument("input " + std::to_string(index) + " is missing");
    return tensor;
  }

  // Without data where nothing was given.
  Tensor optional_input(std::size_t index, std::size_t rank) const {
    const OrtValue* value = nullptr;
    check(api_, Call::kInput,
          static_cast<OrtStatus* (*)(const OrtKernelContext*, std::size_t, const OrtValue**)>(nullptr), context_, index, &value);
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
    OrtValue* value = nullptr;
    check(api_, Call::kOutput,
          static_cast<OrtStatus* (*)(OrtKernelContext*, std::size_t, const std::int64_t*, std::size_t, OrtValue**)>(nullptr),
          context_, index, sizes, std::size_t{2}, &value);
    return static_cast<Number*>(data_of(value));
  }

  // Calls `body(0)` … `body(count - 1)`, with the team's help when that takes one thread `nanoseconds` worth sharing.
  template <class Body>
  void each(std::int64_t count, std::int64_t nanoseconds, const Body& body) const {
    const auto some = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t index = begin; index < end; ++index) body(index);
    };
    if (nanoseconds < kWorthSharing)
      some(0, count);
    else
      Team::instance().share(count, some);
  }

 private:
  // A helper hears of it within a microsecond; but what it writes lies in its own cache, and has to come from there.
  static constexpr std::int64_t kWorthSharing = 8000;

  void* data_of(const OrtValue* value) const {
    void* data = nullptr;
    check(api_, Call::kTensorData, static_cast<OrtStatus* (*)(OrtValue*, void**)>(nullptr), const_cast<OrtValue*>(value), &data);
    return data;
  }

  Tensor described(const OrtValue* value) const {
    Tensor tensor;
    tensor.data = data_of(value);
    OrtShape* shape = nullptr;
    check(api_, Call::kShape, static_cast<OrtStatus* (*)(const OrtValue*, OrtShape**)>(nullptr), value, &shape);
    function_of<OrtStatus*(const OrtShape*, std::size_t*)>(api_, Call::kDimensionCount)(shape, &tensor.rank);
    if (tensor.rank <= 4)
      function_of<OrtStatus*(const OrtShape*, std::int64_t*, std::size_t)>(api_, Call::kDimensions)(shape, tensor.sizes,
                                                                                                   tensor.rank);
    function_of<void(OrtShape*)>(api_, Call::kReleaseShape)(shape);
    return tensor;
  }

  const OrtApi* api_;
  OrtKernelContext* context_;
};

// How ONNX Runtime sees an operator: a table of functions again, in version 17 of its layout.
struct OrtCustomOp {
  std::uint32_t version = kApiVersion;
  void* (*create_without_status)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*) = nullptr;
  const char* (*name)(const OrtCustomOp*) = nullptr;
  const char* (*provider)(const OrtCustomOp*) = nullptr;
  int (*input_type)(const OrtCustomOp*, std::size_t) = nullptr;
  std::size_t (*input_count)(const OrtCustomOp*) = nullptr;
  int (*output_type)(const OrtCustomOp*, std::size_t) = nullptr;
  std::size_t (*output_count)(const OrtCustomOp*) = nullptr;
  void (*compute_without_status)(void*, OrtKernelContext*) = nullptr;
  void (*destroy)(void*) = nullptr;
  int (*input_characteristic)(const OrtCustomOp*, std::size_t) = nullptr;
  int (*output_characteristic)(const OrtCustomOp*, std::size_t) = nullptr;
  int (*input_memory)(const OrtCustomOp*, std::size_t) = nullptr;
  int (*variadic_input_minimum)(const OrtCustomOp*) = nullptr;
  int (*variadic_input_homogeneous)(const OrtCustomOp*) = nullptr;
  int (*variadic_output_minimum)(const OrtCustomOp*) = nullptr;
  int (*variadic_output_homogeneous)(const OrtCustomOp*) = nullptr;
  OrtStatus* (*create)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void**) = nullptr;
  OrtStatus* (*compute)(void*, OrtKernelContext*) = nullptr;
  OrtStatus* (*infer_shapes)(const OrtCustomOp*, void*) = nullptr;
  int (*first_version)(const OrtCustomOp*) = nullptr;
  int (*last_version)(const OrtCustomOp*) = nullptr;
};

inline OrtStatus* failure(const OrtApi* api, const std::string& message) {
  constexpr int kInvalidArgument = 2;
  return function_of<OrtStatus*(int, const char*)>(api, Call::kCreateStatus)(kInvalidArgument, message.c_str());
}

template <class Kernel, class = void>
struct requires_some : std::false_type {};
template <class Kernel>
struct requires_some<Kernel, std::void_t<decltype(Kernel::kRequired)>> : std::true_type {};

// An operator from a class with `kName`, `kInputs`, `kOutputs`, a constructor from Attributes and `compute(Context)`.
template <class Kernel>
struct Operator : OrtCustomOp {
  struct Instance {
    const OrtApi* api;
    Kernel kernel;
  };

  Operator() {
    name = [](const OrtCustomOp*) { return Kernel::kName; };
    provider = [](const OrtCustomOp*) -> const char* { return nullptr; };  // the CPU
    input_type = [](const OrtCustomOp*, std::size_t index) { return static_cast<int>(Kernel::kInputs[index]); };
    input_count = [](const OrtCustomOp*) { return std::size(Kernel::kInputs); };
    output_type = [](const OrtCustomOp*, std::size_t index) { return static_cast<int>(Kernel::kOutputs[index]); };
    output_count = [](const OrtCustomOp*) { return std::size(Kernel::kOutputs); };
    destroy = [](void* instance) { delete static_cast<Instance*>(instance); };
    input_characteristic = [](const OrtCustomOp*, std::size_t index) { return index < required() ? 0 : 1; };
    output_characteristic = [](const OrtCustomOp*, std::size_t) { return 0; };
    input_memory = [](const OrtCustomOp*, std::size_t) { return 0; };  // the device's own
    first_version = [](const OrtCustomOp*) { return 1; };
    last_version = [](const OrtCustomOp*) { return 0x7fffffff; };
    create = [](const OrtCustomOp*, const OrtApi* api, const OrtKernelInfo* info, void** made) {
      return guarded(api, [&] { *made = new Instance{api, Kernel(Attributes(api, info))}; });
    };
    compute = [](void* given, OrtKernelContext* context) {
      auto* instance = static_cast<Instance*>(given);
      return guarded(instance->api, [&] { instance->kernel.compute(Context(instance->api, context)); });
    };
  }

  // Inputs from `kRequired` on may be missing; without it, none may.
  static constexpr std::size_t required() {
    if constexpr (requires_some<Kernel>::value)
      return Kernel::kRequired;
    else
      return std::size(Kernel::kInputs);
  }

  // Nothing may be thrown across the border: a failed call is a status that names the operator.
  template <class Body>
  static OrtStatus* guarded(const OrtApi* api, const Body& body) {
    try {
      body();
      return nullptr;
    } catch (const std::exception& error) {
      return failure(api, std::string(Kernel::kName) + ": " + error.what());
    }
  }
};

}  // namespace dragoman
