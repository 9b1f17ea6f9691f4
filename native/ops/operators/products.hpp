// Linear layers and embeddings, of weights in tiles: int8, or float32 where the name says so.
#pragma once

#include <algorithm>
#include <vector>

#include "../loops.hpp"
#include "../runtime.hpp"
#include "require.hpp"

namespace dragoman {

// A tensor of weights in tiles, (tiles, 16 · inputs).
inline void require_tiles(const Tensor& tiles, std::int64_t inputs, std::int64_t outputs) {
  require(inputs > 0 && inputs % kEight == 0, "the number of inputs must be a multiple of eight");
  require(tiles.sizes[0] == tiles_of(outputs) && tiles.sizes[1] == kTile * inputs, "the weights have other sizes");
}

// How long one thread takes: for reading the weights, and for multiplying them.
inline std::int64_t product_nanoseconds(std::int64_t rows, std::int64_t weights, std::int64_t weight_bytes) {
  constexpr std::int64_t kBytesANanosecond = 100, kBytesMultiplied = 500;
  return weights * weight_bytes / kBytesANanosecond + rows * weights * weight_bytes / kBytesMultiplied;
}

// Some tiles after the other, shared by the team.
template <class Product, class Multiply>
void multiply_all(const Context& context, const Product& product, std::int64_t weight_bytes, Multiply multiply) {
  const std::int64_t tiles = tiles_of(product.outputs), parts = (tiles + kTilesAtOnce - 1) / kTilesAtOnce;
  context.each(parts, product_nanoseconds(product.rows, product.inputs * product.outputs, weight_bytes), [&](std::int64_t part) {
    const std::int64_t begin = part * kTilesAtOnce;
    multiply(product, begin, std::min(begin + kTilesAtOnce, tiles));
  });
}

// The weights of a linear layer, (outputs, inputs) in tiles of int8 with a scale and an offset (outputs).
struct IntegerWeights {
  std::int64_t inputs, outputs;
  const std::int8_t* tiles;
  const float *scale, *offset;

  IntegerWeights(const Tensor& of_tiles, const Tensor& of_scale, const Tensor& of_offset, std::int64_t of_inputs)
      : inputs(of_inputs), outputs(of_scale.sizes[0]), tiles(of_tiles.as<std::int8_t>()), scale(of_scale.as<float>()),
        offset(of_offset.as<float>()) {
    require_tiles(of_tiles, inputs, outputs);
    require(of_offset.sizes[0] == outputs, "inputs do not fit together");
  }

  // act(x W · scale + b): x (rows, inputs) -> to (rows, outputs); the bias may be null.
  void multiply(const Context& context, const float* x, std::int64_t rows, const float* bias, Activation activation,
                float* to) const {
    thread_local std::vector<std::uint8_t> room_for_integers;
    thread_local std::vector<Row> room_for_rows;
    room_for_integers.resize(std::max(room_for_integers.size(), static_cast<std::size_t>(rows * inputs)));
    room_for_rows.resize(std::max(room_for_rows.size(), static_cast<std::size_t>(rows)));
    std::uint8_t* integers = room_for_integers.data();
    Row* rows_as = room_for_rows.data();
    context.each(rows, rows * inputs / 8, [&](std::int64_t row) {
      rows_as[row] = loops().quantise(x + row * inputs, inputs, integers + row * inputs);
    });
    const Finish finish{scale, offset, bias, rows_as, activation};
    const IntegerProduct product{integers, rows, inputs, outputs, tiles, finish, to};
    multiply_all(context, product, 1, loops().multiply_integers);
  }
};

// The weights of a linear layer, (outputs, inputs) in tiles of float32.
struct FloatWeights {
  std::int64_t inputs, outputs;
  const float* tiles;

  FloatWeights(const Tensor& of_tiles, std::int64_t of_inputs, std::int64_t of_outputs)
      : inputs(of_inputs), outputs(of_outputs), tiles(of_tiles.as<float>()) {
    require_tiles(of_tiles, inputs, outputs);
  }

  // act(x W + b): x (rows, inputs) -> to (rows, outputs); the bias may be null.
  void multiply(const Context& context, const float* x, std::int64_t rows, const float* bias, Activation activation,
                float* to) const {
    const Finish finish{nullptr, nullptr, bias, nullptr, activation};
    const FloatProduct product{x, rows, inputs, outputs, tiles, finish, to};
    multiply_all(context, product, sizeof(float), loops().multiply_floats);
  }
};

// x (rows, inputs) times weights, and perhaps a bias (outputs) -> (rows, outputs).
template <class Weights>
void multiply_rows(const Context& context, const Tensor& x, const Weights& weights, const Tensor& bias, Activation activation) {
  require(bias.data == nullptr || bias.sizes[0] == weights.outputs, "inputs do not fit together");
  float* to = context.output<float>(0, x.sizes[0], weights.outputs);
  weights.multiply(context, x.as<float>(), x.sizes[0], bias.as<float>(), activation, to);
}

// A linear layer in int8: x (rows, inputs), weights in tiles, their scale and offset (outputs), and perhaps a bias (outputs).
struct Linear {
  static constexpr const char* kName = "Linear";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kInt8, Type::kFloat, Type::kFloat, Type::kFloat};
  static constexpr Type kOutputs[] = {Type::kFloat};
  static constexpr std::size_t kRequired = 4;
  Activation activation;

  explicit Linear(const Attributes& attributes) : activation(static_cast<Activation>(attributes.integer("activation"))) {}

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const IntegerWeights weights(context.input(1, 2), context.input(2, 1), context.input(3, 1), x.sizes[1]);
    multiply_rows(context, x, weights, context.optional_input(4, 1), activation);
  }
};

// A linear layer: x (rows, inputs), weights in tiles, and perhaps a bias (outputs).
struct FloatLinear {
  static constexpr const char* kName = "FloatLinear";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kFloat, Type::kFloat};
  static constexpr Type kOutputs[] = {Type::kFloat};
  static constexpr std::size_t kRequired = 2;
  std::int64_t outputs;
  Activation activation;

  explicit FloatLinear(const Attributes& attributes)
      : outputs(attributes.integer("columns")), activation(static_cast<Activation>(attributes.integer("activation"))) {}

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const FloatWeights weights(context.input(1, 2), x.sizes[1], outputs);
    multiply_rows(context, x, weights, context.optional_input(2, 1), activation);
  }
};

// The tokens' rows of a table in tiles of sixteen rows. `kWeights` of a row lie side by side.
template <std::int64_t kWeights, class Weight, class Write>
void embed(const Tensor& table, const Tensor& tokens, std::int64_t vocabulary, const Write& write) {
  const std::int64_t width = table.sizes[1] / kTile;
  require_tiles(table, width, vocabulary);
  for (std::int64_t row = 0; row < tokens.sizes[0]; ++row) {
    const std::int64_t token = tokens.as<std::int64_t>()[row];
    require(token >= 0 && token < vocabulary, "a token is not in the vocabulary");
    const Weight* first = table.as<Weight>() + token / kTile * kTile * width + token % kTile * kWeights;
    for (std::int64_t at = 0; at < width; ++at) write(row, token, at, first[at / kWeights * kWeights * kTile + at % kWeights]);
  }
}

// Rows of a table in int8 with a scale (vocabulary) each, of the tokens (rows).
struct Embed {
  static constexpr const char* kName = "Embed";
  static constexpr Type kInputs[] = {Type::kInt8, Type::kFloat, Type::kInt64};
  static constexpr Type kOutputs[] = {Type::kFloat};

  explicit Embed(const Attributes&) {}

  void compute(const Context& context) const {
    const Tensor table = context.input(0, 2), scales = context.input(1, 1), tokens = context.input(2, 1);
    const std::int64_t width = table.sizes[1] / kTile;
    float* to = context.output<float>(0, tokens.sizes[0], width);
    embed<kQuad, std::int8_t>(table, tokens, scales.sizes[0],
                              [&](std::int64_t row, std::int64_t token, std::int64_t at, std::int8_t weight) {
                                to[row * width + at] = static_cast<float>(weight) * scales.as<float>()[token];
                              });
  }
};

// Rows of a table, of the tokens (rows).
struct FloatEmbed {
  static constexpr const char* kName = "FloatEmbed";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kInt64};
  static constexpr Type kOutputs[] = {Type::kFloat};
  std::int64_t vocabulary;

  explicit FloatEmbed(const Attributes& attributes) : vocabulary(attributes.integer("vocabulary")) {}

  void compute(const Context& context) const {
    const Tensor table = context.input(0, 2), tokens = context.input(1, 1);
    const std::int64_t width = table.sizes[1] / kTile;
    float* to = context.output<float>(0, tokens.sizes[0], width);
    embed<1, float>(table, tokens, vocabulary, [&](std::int64_t row, std::int64_t, std::int64_t at, float weight) {
      to[row * width + at] = weight;
    });
  }
};

}  // namespace dragoman
