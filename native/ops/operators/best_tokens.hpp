// The best next tokens: the output projection, of which only the best are kept.
#pragma once

#include <algorithm>
#include <vector>

#include "../operator.hpp"
#include "../top_k.hpp"
#include "../validate.hpp"
#include "linear.hpp"

namespace dragoman {

// So many logits are in memory at once. Those of a large vocabulary would take more memory than the rest of a step, and
// leave the caches before they are searched. They are those of many rows before they are those of many tokens, because the
// weights of a large vocabulary come from memory each time.
constexpr std::int64_t kLogitsAtOnce = 48 * 8192, kRowsAtOnce = 192, kTokensAtOnce = 8192;

// A multiple of kLogitsTogether, so that the sums do not depend on the number of rows.
inline std::int64_t tokens_at_once(std::int64_t rows) {
  return std::min(kLogitsAtOnce / rows / kLogitsTogether * kLogitsTogether, kTokensAtOnce);
}

// Tokens that a caller wants to know the logits of, whether they are among the best or not: (rows, count), −1 for none.
struct ScoredTokens {
  const std::int64_t* tokens = nullptr;
  std::int64_t count = 0;
};

inline ScoredTokens scored_in(const Tensor& input, std::int64_t rows, std::int64_t vocabulary) {
  if (input.rank == 0 || input.sizes[1] == 0) return {};
  require(input.sizes[0] == rows, "scored tokens must have a row for each row of the inputs");
  const ScoredTokens found{input.as<std::int64_t>(), input.sizes[1]};
  for (std::int64_t at = 0; at < rows * found.count; ++at)
    require(found.tokens[at] >= -1 && found.tokens[at] < vocabulary, "a scored token is not in the vocabulary");
  return found;
}

// scale · x Wᵀ + b: x (rows, inputs), perhaps a bias (vocabulary): the `candidates` (1) largest of each row, best first, and
// behind them the scored tokens in their order, token 0 and −∞ for none.
template <class Weights>
void find_best(const Context& context, const Tensor& x, const Weights& weights, float scale, const Tensor& candidates,
               const Tensor& bias, const Tensor& scored_tokens) {
  const std::int64_t rows = x.sizes[0], vocabulary = weights.outputs;
  require(candidates.sizes[0] == 1, "candidates must be one number");
  const std::int64_t wanted = candidates.as<std::int64_t>()[0];
  const float* added = bias_for(bias, vocabulary);
  require(wanted > 0 && wanted <= vocabulary, "candidates must be at least one and no more than the vocabulary");
  const ScoredTokens scored = scored_in(scored_tokens, rows, vocabulary);
  const std::int64_t columns = wanted + scored.count;
  auto* tokens = context.output<std::int64_t>(0, rows, columns);
  auto* log_probs = context.output<float>(1, rows, columns);
  auto* best_logits = context.output<float>(2, rows, columns);
  thread_local std::vector<float> room_for_logits;
  thread_local std::vector<TopK> best;
  const std::int64_t most_rows = std::min(rows, kRowsAtOnce), room = std::min(most_rows * vocabulary, kLogitsAtOnce);
  room_for_logits.resize(std::max(room_for_logits.size(), static_cast<std::size_t>(room)));
  best.resize(std::max(best.size(), static_cast<std::size_t>(most_rows)));
  float* logits = room_for_logits.data();
  TopK* best_of = best.data();
  const std::int64_t parts = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  for (std::int64_t part = 0, row = 0; part < parts; ++part) {
    const std::int64_t some = (rows - row) / (parts - part);
    const auto given = weights.rows(context, x.as<float>() + row * weights.inputs, some, scale);
    const std::int64_t at_once = tokens_at_once(some);
    for (std::int64_t token = 0; token < vocabulary; token += at_once) {
      const std::int64_t count = std::min(at_once, vocabulary - token);
      const auto product = weights.slice(token, count).matmul(given, some, nullptr, Activation::kNone, false, logits);
      const auto multiply = Weights::kernel();
      each_tiles(context, count, matmul_nanoseconds(some, weights.inputs * count, Weights::kBytes),
                 [&](std::int64_t begin, std::int64_t end) { multiply(product, begin, end); });
      context.each(some, some * count / 4, [&](std::int64_t number) {
        if (token == 0) best_of[number].clear();
        best_of[number].add(logits + number * count, added == nullptr ? nullptr : added + token, token, count, wanted);
      });
      for (std::int64_t at = row * scored.count; at < (row + some) * scored.count; ++at) {
        const std::int64_t place = scored.tokens[at] - token;
        if (place < 0 || place >= count) continue;
        const std::int64_t number = at / scored.count;
        const float logit = logits[(number - row) * count + place] + (added == nullptr ? 0.0f : added[token + place]);
        best_logits[number * columns + wanted + at % scored.count] = logit;
      }
    }
    for (std::int64_t number = 0; number < some; ++number, ++row) {
      const Best found{tokens + row * columns, log_probs + row * columns, best_logits + row * columns};
      best_of[number].write(wanted, found);
      for (std::int64_t at = 0; at < scored.count; ++at) {
        const std::int64_t token = scored.tokens[row * scored.count + at], column = wanted + at;
        if (token < 0) found.logits[column] = kLowest;
        found.tokens[column] = token < 0 ? 0 : token;
        found.log_probs[column] = token < 0 ? kLowest : found.logits[column] - best_of[number].normaliser();
      }
    }
  }
}

// In int8: x (rows, inputs), tiles, scale and offset (vocabulary), candidates (1), and perhaps a bias (vocabulary) and scored
// tokens (rows, any number).
struct BestOutputs {
  static constexpr const char* kName = "BestOutputs";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kInt8,  ElementType::kFloat,
                                            ElementType::kFloat, ElementType::kInt64, ElementType::kFloat,
                                            ElementType::kInt64};
  static constexpr ElementType kOutputs[] = {ElementType::kInt64, ElementType::kFloat, ElementType::kFloat};
  static constexpr std::size_t kRequired = 5;
  float scale;

  explicit BestOutputs(const Attributes& attributes) : scale(attributes.real_or(1.0f, "scale")) {}

  static void infer(const Shapes&) {}  // only a call knows the number of candidates

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const IntegerWeights weights(context.input(1, 2), context.input(2, 1), context.input(3, 1), x.sizes[1]);
    find_best(context, x, weights, scale, context.input(4, 1), context.optional_input(5, 1),
              context.optional_input(6, 2));
  }
};

// In float32: x (rows, inputs), tiles, candidates (1), and perhaps a bias (vocabulary) and scored tokens (rows,
// any number).
struct FloatBestOutputs {
  static constexpr const char* kName = "FloatBestOutputs";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kInt64,
                                            ElementType::kFloat, ElementType::kInt64};
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
    find_best(context, x, weights, scale, context.input(2, 1), context.optional_input(3, 1),
              context.optional_input(4, 2));
  }
};

}  // namespace dragoman
