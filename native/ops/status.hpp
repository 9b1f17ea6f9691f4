// The statuses that ONNX Runtime's functions return: each is looked at and released.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "onnxruntime_api.hpp"

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

}  // namespace dragoman
