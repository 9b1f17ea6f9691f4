// Rows of a tiled table like that of the output projection: int8, or float32 where the name begins with Float.
#pragma once

#include "../kernels.hpp"
#include "../operator.hpp"
#include "../validate.hpp"
#include "linear.hpp"

namespace dragoman {

// What becomes of a row of the table: · scale + a row of `positions`, chosen by a position + offset.
struct Embedding {
  float scale;
  std::int64_t offset;

  explicit Embedding(const Attributes& attributes)
      : scale(attributes.real_or(1.0f, "scale")), offset(attributes.integer_or(0, "offset", 0, kLargestSize)) {}

  // `kSide` elements of a row lie side by side; `scale_of(token)` is the scale of its row.
  template <std::int64_t kSide, class Element, class Scale>
  void compute(const Context& context, const Tensor& table, std::int64_t vocabulary, std::int64_t width,
               const Tensor& tokens, const Tensor& positions, const Tensor& position_table, const Scale& scale_of) const {
    const std::int64_t rows = tokens.sizes[0], stored = table.sizes[1] / kTile;
    require(
        table.sizes[0] == tiles_of(vocabulary) && table.sizes[1] == kTile * stored && width <= stored && stored % kSide == 0,
        "the table must be (⌈vocabulary / 16⌉, 16 · width)");
    require((positions.data == nullptr) == (position_table.data == nullptr), "positions and their table belong together");
    require(positions.data == nullptr || (positions.sizes[0] == rows && position_table.sizes[1] == width),
            "there must be a position for each token, and the positions' table must be (positions, width)");
    auto* output = context.output<float>(0, rows, width);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t token = tokens.as<std::int64_t>()[row];
      require(token >= 0 && token < vocabulary, "a token is not in the vocabulary");
      const Element* first = table.as<Element>() + token / kTile * kTile * stored + token % kTile * kSide;
      const float factor = scale_of(token) * scale;
      float* to = output + row * width;
      for (std::int64_t at = 0; at < width; ++at) {
        const std::int64_t place = at / kSide * kSide * kTile + at % kSide;
        to[at] = static_cast<float>(first[place]) * factor;
      }
      if (positions.data != nullptr) add_position(to, width, positions.as<std::int32_t>()[row], position_table);
    }
  }

 private:
  void add_position(float* to, std::int64_t width, std::int64_t position, const Tensor& table) const {
    require(position >= 0 && position + offset < table.sizes[0], "a position is beyond the positions' table");
    const float* added = table.as<float>() + (position + offset) * width;
    for (std::int64_t at = 0; at < width; ++at) to[at] += added[at];
  }
};

// In int8: table, scale (vocabulary), tokens (rows), and perhaps positions (rows) and their table (positions, width).
struct Embed {
  static constexpr const char* kName = "Embed";
  static constexpr ElementType kInputs[] = {ElementType::kInt8, ElementType::kFloat, ElementType::kInt64,
                                            ElementType::kInt32, ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat};
  static constexpr std::size_t kRequired = 3;
  Embedding embedding;
  std::int64_t width;  // 0: that of the table

  explicit Embed(const Attributes& attributes)
      : embedding(attributes), width(attributes.integer_or(0, "width", 1, kLargestSize)) {}

  static void infer(const Shapes& shapes) {
    const auto width = shapes.integer("width");
    const std::int64_t stored = shapes.size_of(0, 1).size;
    shapes.set(0, ElementType::kFloat,
               {shapes.size_of(2, 0), Dimension{width        ? *width
                                                : stored < 0 ? -1
                                                             : stored / kTile,
                                                ""}});
  }

  void compute(const Context& context) const {
    const Tensor table = context.input(0, 2), scales = context.input(1, 1), tokens = context.input(2, 1);
    embedding.compute<kQuad, std::int8_t>(context, table, scales.sizes[0], width > 0 ? width : table.sizes[1] / kTile,
                                          tokens, context.optional_input(3, 1), context.optional_input(4, 2),
                                          [&](std::int64_t token) { return scales.as<float>()[token]; });
  }
};

// In float32: table, tokens (rows), and perhaps positions (rows) and their table (positions, width).
struct FloatEmbed {
  static constexpr const char* kName = "FloatEmbed";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kInt64, ElementType::kInt32,
                                            ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat};
  static constexpr std::size_t kRequired = 2;
  Embedding embedding;
  std::int64_t vocabulary;

  explicit FloatEmbed(const Attributes& attributes)
      : embedding(attributes), vocabulary(attributes.integer("vocabulary", 1, kMostOutputs)) {}

  static void infer(const Shapes& shapes) {
    const std::int64_t stored = shapes.size_of(0, 1).size;
    shapes.set(0, ElementType::kFloat, {shapes.size_of(1, 0), Dimension{stored < 0 ? -1 : stored / kTile, ""}});
  }

  void compute(const Context& context) const {
    const Tensor table = context.input(0, 2), tokens = context.input(1, 1);
    embedding.compute<1, float>(context, table, vocabulary, table.sizes[1] / kTile, tokens, context.optional_input(2, 1),
                                context.optional_input(3, 2), [](std::int64_t) { return 1.0f; });
  }
};

}  // namespace dragoman
