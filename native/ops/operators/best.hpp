// The best next tokens: the output projection, of which only the best are kept.
#pragma once

#include <algorithm>
#include <vector>

#include "../best_tokens.hpp"
#include "../runtime.hpp"
#include "products.hpp"
#include "require.hpp"

namespace dragoman {

// x (rows, inputs) times weights, plus perhaps a bias (vocabulary): the `candidates` (1) largest of each row, best first.
// The logits of some rows at a time are computed: those of all rows would take more memory than the rest of a step, and
// weights that were read for so many rows are read again while they are multiplied.
template <class Weights>
void find_best(const Context& context, const Tensor& x, const Weights& weights, const Tensor& candidates, const Tensor& bias) {
  constexpr std::int64_t kRowsAtOnce = 48;
  const std::int64_t rows = x.sizes[0], vocabulary = weights.outputs, wanted = candidates.as<std::int64_t>()[0];
  require(bias.data == nullptr || bias.sizes[0] == vocabulary, "inputs do not fit together");
  require(wanted > 0 && wanted <= vocabulary, "candidates must be at least one and no more than the vocabulary");
  auto* tokens = context.output<std::int64_t>(0, rows, wanted);
  auto* log_probs = context.output<float>(1, rows, wanted);
  auto* best_logits = context.output<float>(2, rows, wanted);
  thread_local std::vector<float> room_for_logits;
  room_for_logits.resize(
      std::max(room_for_logits.size(), static_cast<std::size_t>(std::min(rows, kRowsAtOnce) * vocabulary)));
  float* logits = room_for_logits.data();
  const std::int64_t parts = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  for (std::int64_t part = 0, first = 0; part < parts; ++part) {
    const std::int64_t some = (rows - first) / (parts - part);
    weights.multiply(context, x.as<float>() + first * weights.inputs, some, nullptr, Activation::kNone, logits);
    context.each(some, some * vocabulary / 4, [&](std::int64_t row) {
      const std::int64_t at = (first + row) * wanted;
      best_of(logits + row * vocabulary, bias.as<float>(), vocabulary, wanted, {tokens + at, log_probs + at, best_logits + at});
    });
    first += some;
  }
}

// Of a projection in int8: x, weights in tiles, scale and offset (vocabulary), candidates (1), and perhaps a bias (vocabulary).
struct BestOutputs {
  static constexpr const char* kName = "BestOutputs";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kInt8, Type::kFloat, Type::kFloat, Type::kInt64, Type::kFloat};
  static constexpr Type kOutputs[] = {Type::kInt64, Type::kFloat, Type::kFloat};
  static constexpr std::size_t kRequired = 5;

  explicit BestOutputs(const Attributes&) {}

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const IntegerWeights weights(context.input(1, 2), context.input(2, 1), context.input(3, 1), x.sizes[1]);
    find_best(context, x, weights, context.input(4, 1), context.optional_input(5, 1));
  }
};

// Of a projection in float32: x, weights in tiles, candidates (1), and perhaps a bias (vocabulary).
struct FloatBestOutputs {
  static constexpr const char* kName = "FloatBestOutputs";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kFloat, Type::kInt64, Type::kFloat};
  static constexpr Type kOutputs[] = {Type::kInt64, Type::kFloat, Type::kFloat};
  static constexpr std::size_t kRequired = 3;
  std::int64_t vocabulary;

  explicit FloatBestOutputs(const Attributes& attributes) : vocabulary(attributes.integer("vocabulary")) {}

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const FloatWeights weights(context.input(1, 2), x.sizes[1], vocabulary);
    find_best(context, x, weights, context.input(2, 1), context.optional_input(3, 1));
  }
};

}  // namespace dragoman
