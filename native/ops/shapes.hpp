// What an operator's shape function reads and tells, before anything runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "status.hpp"

namespace dragoman {

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

}  // namespace dragoman
