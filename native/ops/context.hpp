// What an operator reads and writes through ONNX Runtime: its attributes when it is made, its tensors when it is called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "status.hpp"
#include "thread_pool.hpp"
#include "validate.hpp"

namespace dragoman {

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

}  // namespace dragoman
