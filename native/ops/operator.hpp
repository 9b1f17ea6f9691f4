// Custom operators from classes: how ONNX Runtime calls them.
#pragma once

#include <cstddef>
#include <exception>
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "context.hpp"
#include "onnxruntime_api.hpp"
#include "shapes.hpp"

namespace dragoman {

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
