// The best next tokens: the output projection, of which only the best are kept.
#pragma once

#include <algorithm>
#include <vector>

#include "../operator.hpp"
#include "../top_k.hpp"
#include "../validate.hpp"
#include "linear.hpp"

namespace dragoman {

// The logits of so many tokens for so many rows are in memory at once. Those of a large vocabulary would take more memory
// than the rest of a step, and leave the caches before they are searched; weights that were read for so many rows are worth
// it.
constexpr std::int64_t kTokensAtOnce = 8192, kRowsAtOnce = 48;

// scale · x Wᵀ + b: x (rows, inputs), perhaps a bias (vocabulary): the `candidates` (1) largest of each row, best first.
template <class Weights>
void find_best(const Context& context, const Tensor& x, const Weights& weights, float scale, const Tensor& candidates,
               const Tensor& bias) {
  const std::int64_t rows = x.sizes[0], vocabulary = weights.outputs;
  require(candidates.sizes[0] == 1, "candidates must be one number");
  const std::int64_t wanted = candidates.as<std::int64_t>()[0];
  const float* added = bias_for(bias, vocabulary);
  require(wanted > 0 && wanted <= vocabulary, "candidates must be at least one and no more than the vocabulary");
  auto* tokens = context.output<std::int64_t>(0, rows, wanted);
  auto* log_probs = context.output<float>(1, rows, wanted);
  auto* best_logits = context.output<float>(2, rows, wanted);
  thread_local std::vector<float> room_for_logits;
  thread_local std::vector<TopK> best;
  const auto room = static_cast<std::size_t>(std::min(rows, kRowsAtOnce));
  room_for_logits.resize(std::max(room_for_logits.size(), room * std::min(vocabulary, kTokensAtOnce)));
  if (best.size() < room) best.resize(room);
  float* logits = room_for_logits.data();
  TopK* best_of = best.data();
  const std::int64_t parts = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  for (std::int64_t part = 0, row = 0; part < parts; ++part) {
    const std::int64_t some = (rows - row) / (parts - part);
    const auto given = weights.rows(context, x.as<float>() + row * weights.inputs, some, scale);
    for (std::int64_t token = 0; token < vocabulary; token += kTokensAtOnce) {
      const std::int64_t count = std::min(kTokensAtOnce, vocabulary - token);
      const auto product = weights.slice(token, count).matmul(given, some, nullptr, Activation::kNone, false, logits);
      const auto multiply = Weights::kernel();
      each_tiles(context, count, matmul_nanoseconds(some, weights.inputs * count, Weights::kBytes),
                 [&](std::int64_t begin, std::int64_t end) { multiply(product, begin, end); });
      context.each(some, some * count / 4, [&](std::int64_t number) {
        if (token == 0) best_of[number].clear();
        best_of[number].add(logits + number * count, added == nullptr ? nullptr : added + token, token, count, wanted);
      });
    }
    for (std::int64_t number = 0; number < some; ++number, ++row)
      best_of[number].write(wanted, {tokens + row * wanted, log_probs + row * wanted, best_logits + row * wanted});
  }
}

// In int8: x (rows, inputs), tiles, scale and offset (vocabulary), candidates (1), and perhaps a bias (vocabulary).
struct BestOutputs {
  static constexpr const char* kName = "BestOutputs";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kInt8,  ElementType::kFloat,
                                            ElementType::kFloat, ElementType::kInt64, ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kInt64, ElementType::kFloat, ElementType::kFloat};
  static constexpr std::size_t kRequired = 5;
  float scale;

  explicit BestOutputs(const Attributes& attributes) : scale(attributes.real_or(1.0f, "scale")) {}

  static void infer(const Shapes&) {}  // only a call knows the number of candidates

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const IntegerWeights weights(context.input(1, 2), context.input(2, 1), context.input(3, 1), x.sizes[1]);
    find_best(context, x, weights, scale, context.input(4, 1), context.optional_input(5, 1));
  }
};

// In float32: x (rows, inputs), tiles, candidates (1), and perhaps a bias (vocabulary).
struct FloatBestOutputs {
  static constexpr const char* kName = "FloatBestOutputs";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kInt64,
                                            ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kInt64, ElementType::kFloat, ElementType::kFloat};
  static constexpr std::size_t kRequired = 3;
  std::int64_t vocabulary;
  float scale;

  explicit FloatBestOutputs(const Attributes& attributes)
      : vocabulary(attributes.integer("vocabulary", 1, kMostOutputs)), scale(attributes.real_or(1.0f, "scale")) {}

  static void infer(const Shapes&) {}  // only a call knows the number of candidates

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const FloatWeights weights(context.input(1, 2), x.sizes[1], vocabulary);
    find_best(context, x, weights, scale, context.input(2, 1), context.optional_input(3, 1));
  }
};

}  // namespace dragoman
