// Linear layers of tiled weights: int8, or float32 where the name begins with Float.
#pragma once

#include <algorithm>
#include <vector>

#include "../kernels.hpp"
#include "../operator.hpp"
#include "../validate.hpp"

namespace dragoman {

constexpr std::int64_t kMostOutputs = std::int64_t{1} << 28;

inline Activation activation_of(const Attributes& attributes) {
  return static_cast<Activation>(attributes.integer_or(0, "activation", 0, static_cast<std::int64_t>(kLastActivation)));
}

inline Dimension outputs_of(const Shapes& shapes, const char* attribute) {
  const auto outputs = shapes.integer(attribute);
  return outputs ? Dimension{*outputs, ""} : Dimension{};
}

// How long one thread takes for reading the weights and for multiplying them.
inline std::int64_t matmul_nanoseconds(std::int64_t rows, std::int64_t weights, std::int64_t weight_bytes) {
  constexpr std::int64_t kBytesRead = 100, kBytesMultiplied = 500;  // per nanosecond
  return weights * weight_bytes / kBytesRead + rows * weights * weight_bytes / kBytesMultiplied;
}

// Calls `multiply(begin, end)` for a few tiles at a time, in several threads.
template <class Multiply>
void each_tiles(const Context& context, std::int64_t outputs, std::int64_t nanoseconds, const Multiply& multiply) {
  const std::int64_t tiles = tiles_of(outputs), parts = (tiles + kTilesAtOnce - 1) / kTilesAtOnce;
  context.each(parts, nanoseconds, [&](std::int64_t part) {
    const std::int64_t begin = part * kTilesAtOnce;
    multiply(begin, std::min(begin + kTilesAtOnce, tiles));
  });
}

// Rows of floats as integers, with room for the zeros that fill them up to a multiple of eight.
struct QuantisedRows {
  std::int64_t stride;
  const std::uint8_t* integers;
  const QuantisedRow* rows;

  QuantisedRows(const Context& context, const float* x, std::int64_t count, std::int64_t inputs, float factor)
      : stride(round_up(inputs, kEight)) {
    thread_local std::vector<std::uint8_t> room_for_integers;
    thread_local std::vector<QuantisedRow> room_for_rows;
    room_for_integers.resize(std::max(room_for_integers.size(), static_cast<std::size_t>(count * stride)));
    room_for_rows.resize(std::max(room_for_rows.size(), static_cast<std::size_t>(count)));
    std::uint8_t* to = room_for_integers.data();
    QuantisedRow* quantised = room_for_rows.data();
    context.each(count, count * inputs / 8, [&, this](std::int64_t row) {
      const QuantisedRow as = kernels().quantise(x + row * inputs, inputs, to + row * stride);
      std::fill(to + row * stride + inputs, to + (row + 1) * stride, std::uint8_t{0});
      quantised[row] = {as.lowest * factor, as.step * factor};
    });
    integers = to, rows = quantised;
  }
};

// The weights of a linear layer, (outputs, inputs) in tiles of int8, with a scale and an offset (outputs).
struct IntegerWeights {
  using Rows = QuantisedRows;
  static constexpr std::int64_t kBytes = 1;
  std::int64_t inputs, outputs;
  const std::int8_t* tiles;
  const float *scale, *offset;

  IntegerWeights(const Tensor& of_tiles, const Tensor& of_scale, const Tensor& of_offset, std::int64_t of_inputs)
      : inputs(of_inputs),
        outputs(of_scale.sizes[0]),
        tiles(of_tiles.as<std::int8_t>()),
        scale(of_scale.as<float>()),
        offset(of_offset.as<float>()) {
    require(inputs > 0 && outputs > 0 && outputs <= kMostOutputs, "a linear layer must have inputs and outputs");
    require(of_tiles.sizes[0] == tiles_of(outputs) && of_tiles.sizes[1] == kTile * round_up(inputs, kEight),
            "the weights must be (⌈outputs / 16⌉, 16 · inputs), with inputs rounded up to a multiple of 8");
    require(of_offset.sizes[0] == outputs, "there must be as many offsets as scales");
  }

  Rows rows(const Context& context, const float* x, std::int64_t count, float factor) const {
    return {context, x, count, inputs, factor};
  }

  // Some of the outputs, from the beginning of a tile on.
  IntegerWeights slice(std::int64_t first, std::int64_t count) const {
    IntegerWeights part = *this;
    part.tiles += first * round_up(inputs, kEight), part.scale += first, part.offset += first, part.outputs = count;
    return part;
  }

  IntegerMatMul matmul(const Rows& x, std::int64_t count, const float* bias, Activation activation, bool gated,
                       float* output) const {
    const Epilogue epilogue{scale, offset, x.rows, 1.0f, bias, activation, gated};
    return {x.integers, count, x.stride, outputs, tiles, epilogue, output};
  }

  static auto kernel() { return kernels().multiply_integers; }
};

// The weights of a linear layer, (outputs, inputs) in tiles of float32.
struct FloatWeights {
  struct Rows {
    const float* x;
    float factor;
  };
  static constexpr std::int64_t kBytes = sizeof(float);
  std::int64_t inputs, outputs;
  const float* tiles;

  FloatWeights(const Tensor& of_tiles, std::int64_t of_inputs, std::int64_t of_outputs)
      : inputs(of_inputs), outputs(of_outputs), tiles(of_tiles.as<float>()) {
    require(inputs > 0, "a linear layer must have inputs");
    require(of_tiles.sizes[0] == tiles_of(outputs) && of_tiles.sizes[1] == kTile * inputs,
            "the weights must be (⌈outputs / 16⌉, 16 · inputs)");
  }

  Rows rows(const Context&, const float* x, std::int64_t, float factor) const { return {x, factor}; }

  // Some of the outputs, from the beginning of a tile on.
  FloatWeights slice(std::int64_t first, std::int64_t count) const {
    FloatWeights part = *this;
    part.tiles += first * inputs, part.outputs = count;
    return part;
  }

  FloatMatMul matmul(const Rows& x, std::int64_t count, const float* bias, Activation activation, bool gated,
                     float* output) const {
    const Epilogue epilogue{nullptr, nullptr, nullptr, x.factor, bias, activation, gated};
    return {x.x, count, inputs, outputs, tiles, epilogue, output};
  }

  static auto kernel() { return kernels().multiply_floats; }
};

// The bias of a linear layer, if it has one.
inline const float* bias_for(const Tensor& bias, std::int64_t outputs) {
  require(bias.data == nullptr || bias.sizes[0] == outputs, "the bias must have one number for each output");
  return bias.as<float>();
}

// act(x Wᵀ + b): x (rows, inputs) -> (rows, outputs).
template <class Weights>
void linear(const Context& context, const Tensor& x, const Weights& weights, const Tensor& bias, Activation activation) {
  const std::int64_t rows = x.sizes[0], outputs = weights.outputs;
  const float* added = bias_for(bias, outputs);
  auto* output = context.output<float>(0, rows, outputs);
  const auto given = weights.rows(context, x.as<float>(), rows, 1.0f);
  const std::int64_t nanoseconds = matmul_nanoseconds(rows, weights.inputs * outputs, Weights::kBytes);
  const auto product = weights.matmul(given, rows, added, activation, false, output);
  const auto multiply = Weights::kernel();
  each_tiles(context, outputs, nanoseconds, [&](std::int64_t begin, std::int64_t end) { multiply(product, begin, end); });
}

// act(x Gᵀ + g) ⊙ (x Wᵀ + b): x (rows, inputs) -> (rows, outputs). A part of both products at a time: the gate's is still in
// the nearest cache when the other is multiplied by it.
template <class Weights>
void gated_linear(const Context& context, const Tensor& x, const Weights& gate, const Weights& weights,
                  const Tensor& gate_bias, const Tensor& bias, Activation activation) {
  const std::int64_t rows = x.sizes[0], outputs = weights.outputs;
  require(gate.outputs == outputs, "the gate must have as many outputs as what it multiplies");
  const float *gate_added = bias_for(gate_bias, outputs), *added = bias_for(bias, outputs);
  auto* output = context.output<float>(0, rows, outputs);
  const auto given = weights.rows(context, x.as<float>(), rows, 1.0f);
  const std::int64_t nanoseconds = matmul_nanoseconds(rows, 2 * weights.inputs * outputs, Weights::kBytes);
  const auto gates = gate.matmul(given, rows, gate_added, activation, false, output);
  const auto product = weights.matmul(given, rows, added, Activation::kNone, true, output);
  const auto multiply = Weights::kernel();
  each_tiles(context, outputs, nanoseconds, [&](std::int64_t begin, std::int64_t end) {
    multiply(gates, begin, end);
    multiply(product, begin, end);
  });
}

// In int8: x (rows, inputs), tiles, their scale and offset (outputs), and perhaps a bias (outputs).
struct Linear {
  static constexpr const char* kName = "Linear";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kInt8, ElementType::kFloat,
                                            ElementType::kFloat, ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat};
  static constexpr std::size_t kRequired = 4;
  Activation activation;

  explicit Linear(const Attributes& attributes) : activation(activation_of(attributes)) {}

  static void infer(const Shapes& shapes) {
    shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), shapes.size_of(2, 0)});
  }

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const IntegerWeights weights(context.input(1, 2), context.input(2, 1), context.input(3, 1), x.sizes[1]);
    linear(context, x, weights, context.optional_input(4, 1), activation);
  }
};

// In float32: x (rows, inputs), tiles, and perhaps a bias (outputs).
struct FloatLinear {
  static constexpr const char* kName = "FloatLinear";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat};
  static constexpr std::size_t kRequired = 2;
  std::int64_t outputs;
  Activation activation;

  explicit FloatLinear(const Attributes& attributes)
      : outputs(attributes.integer("columns", 1, kMostOutputs)), activation(activation_of(attributes)) {}

  static void infer(const Shapes& shapes) {
    shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), outputs_of(shapes, "columns")});
  }

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    linear(context, x, FloatWeights(context.input(1, 2), x.sizes[1], outputs), context.optional_input(2, 1), activation);
  }
};

// In int8: x (rows, inputs); the gate's tiles, scale and offset; the other factor's tiles, scale and offset; and perhaps the
// biases of both.
struct GatedLinear {
  static constexpr const char* kName = "GatedLinear";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kInt8,  ElementType::kFloat,
                                            ElementType::kFloat, ElementType::kInt8,  ElementType::kFloat,
                                            ElementType::kFloat, ElementType::kFloat, ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat};
  static constexpr std::size_t kRequired = 7;
  Activation activation;

  explicit GatedLinear(const Attributes& attributes) : activation(activation_of(attributes)) {}

  static void infer(const Shapes& shapes) {
    shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), shapes.size_of(5, 0)});
  }

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const IntegerWeights gate(context.input(1, 2), context.input(2, 1), context.input(3, 1), x.sizes[1]);
    const IntegerWeights weights(context.input(4, 2), context.input(5, 1), context.input(6, 1), x.sizes[1]);
    gated_linear(context, x, gate, weights, context.optional_input(7, 1), context.optional_input(8, 1), activation);
  }
};

// In float32: x (rows, inputs), the gate's tiles, the other factor's tiles, and perhaps the biases of both.
struct FloatGatedLinear {
  static constexpr const char* kName = "FloatGatedLinear";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kFloat,
                                            ElementType::kFloat, ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat};
  static constexpr std::size_t kRequired = 3;
  std::int64_t outputs;
  Activation activation;

  explicit FloatGatedLinear(const Attributes& attributes)
      : outputs(attributes.integer("columns", 1, kMostOutputs)), activation(activation_of(attributes)) {}

  static void infer(const Shapes& shapes) {
    shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), outputs_of(shapes, "columns")});
  }

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const FloatWeights gate(context.input(1, 2), x.sizes[1], outputs), weights(context.input(2, 2), x.sizes[1], outputs);
    gated_linear(context, x, gate, weights, context.optional_input(3, 1), context.optional_input(4, 1), activation);
  }
};

}  // namespace dragoman
