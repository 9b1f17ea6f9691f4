// The best next tokens: the output projection, of which only the best are kept.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "../operator.hpp"
#include "../top_k.hpp"
#include "../validate.hpp"
#include "linear.hpp"
#include "shortlists.hpp"

namespace dragoman {

// So many logits are in memory at once. Those of a large vocabulary would take more memory than the rest of a step, and
// leave the caches before they are searched. They are those of many rows before they are those of many tokens, because the
// weights of a large vocabulary come from memory each time.
constexpr std::int64_t kLogitsAtOnce = 48 * 8192, kRowsAtOnce = 192, kTokensAtOnce = 8192;

// A vocabulary whose weights a cache holds is best searched as a whole, for as many rows as there is room.
inline std::int64_t rows_at_once(std::int64_t vocabulary) {
  return vocabulary <= kTokensAtOnce ? kLogitsAtOnce / kTokensAtOnce : kRowsAtOnce;
}

// A multiple of kLogitsTogether, so that the sums do not depend on the number of rows.
inline std::int64_t tokens_at_once(std::int64_t rows) {
  return std::min(kLogitsAtOnce / rows / kLogitsTogether * kLogitsTogether, kTokensAtOnce);
}

// Tokens that a caller wants to know the logits of, whether they are among the best or not: (rows, count), −1 for none.
struct ScoredTokens {
  const std::int64_t* tokens = nullptr;
  std::int64_t count = 0;
};

inline ScoredTokens scored_in(const Tensor& input, std::int64_t rows, std::int64_t vocabulary, const Shortlists& lists) {
  if (input.rank == 0 || input.sizes[1] == 0) return {};
  require(input.sizes[0] == rows, "scored tokens must have a row for each row of the inputs");
  const ScoredTokens found{input.as<std::int64_t>(), input.sizes[1]};
  const std::int64_t most = lists.tokens() == nullptr ? vocabulary : kMostOutputs;  // a list need not have them
  for (std::int64_t at = 0; at < rows * found.count; ++at)
    require(found.tokens[at] >= -1 && found.tokens[at] < most, "a scored token is not in the vocabulary");
  return found;
}

template <class Element>
void grow(std::vector<Element>& room, std::int64_t count) {
  if (static_cast<std::int64_t>(room.size()) < count) room.resize(static_cast<std::size_t>(count));
}

// scale · x Wᵀ + b for some rows and some of the table at a time, of which the best are kept.
template <class Weights>
class BestSearch {
 public:
  BestSearch(const Context& context, const Weights& weights, const Shortlists& lists, const Tensor& x, const float* bias,
             float scale, const ScoredTokens& scored, std::int64_t wanted)
      : context_(context),
        weights_(weights),
        lists_(lists),
        x_(x.as<float>()),
        bias_(bias),
        scale_(scale),
        scored_(scored),
        wanted_(wanted),
        columns_(wanted + scored.count) {
    const std::int64_t rows = x.sizes[0];
    tokens_ = context.output<std::int64_t>(0, rows, columns_);
    log_probs_ = context.output<float>(1, rows, columns_);
    best_logits_ = context.output<float>(2, rows, columns_);
    thread_local std::vector<float> room_for_logits, room_for_x;
    thread_local std::vector<TopK> best;
    thread_local std::vector<std::int64_t> order, places;
    const std::int64_t most_rows = std::min(rows, rows_at_once(weights.outputs));
    grow(room_for_logits, std::min(most_rows * weights.outputs, kLogitsAtOnce));
    grow(best, most_rows);
    grow(places, most_rows * scored.count);
    logits_ = room_for_logits.data(), best_ = best.data(), places_ = places.data();
    order.resize(static_cast<std::size_t>(rows));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    const auto by_list = [&](std::int64_t a, std::int64_t b) { return lists.of_row(a) < lists.of_row(b); };
    order_ = order.data();
    if (std::is_sorted(order.begin(), order.end(), by_list)) return;
    std::stable_sort(order.begin(), order.end(), by_list);
    grow(room_for_x, most_rows * weights.inputs);
    gathered_ = room_for_x.data();
  }

  // Some rows, in the order of their lists.
  void find(std::int64_t begin, std::int64_t count) {
    begin_ = begin;
    const float* x = gathered_ == nullptr ? x_ + begin * weights_.inputs : gathered_;
    for (std::int64_t number = 0; number < count; ++number) {
      best_[number].clear();
      if (gathered_ != nullptr)
        std::copy_n(x_ + row(number) * weights_.inputs, weights_.inputs, gathered_ + number * weights_.inputs);
      for (std::int64_t at = 0; at < scored_.count; ++at) {
        const std::int64_t token = scored_.tokens[row(number) * scored_.count + at];
        places_[number * scored_.count + at] = token < 0 ? -1 : lists_.place(lists_.of_row(row(number)), token);
      }
    }
    for (std::int64_t which = 0; which < Shortlists::kRanges; ++which)
      for (std::int64_t first = 0, last = 0; first < count; first = last) {
        const TableRange range = range_of(first, which);
        while (last < count && range_of(last, which) == range) ++last;  // rows that multiply the same weights
        if (range.begin < range.end) multiply(x + first * weights_.inputs, first, last - first, range);
      }
    for (std::int64_t number = 0; number < count; ++number) write(number);
  }

 private:
  std::int64_t row(std::int64_t number) const { return order_[begin_ + number]; }

  TableRange range_of(std::int64_t number, std::int64_t which) const {
    return lists_.range(lists_.of_row(row(number)), which);
  }

  void multiply(const float* x, std::int64_t first, std::int64_t rows, const TableRange& range) {
    const auto given = weights_.rows(context_, x, rows, scale_);
    const std::int64_t at_once = tokens_at_once(rows);
    for (std::int64_t place = range.begin; place < range.end; place += at_once) {
      const std::int64_t count = std::min(at_once, range.end - place);
      const auto product = weights_.slice(place, count).matmul(given, rows, nullptr, Activation::kNone, false, logits_);
      const auto kernel = Weights::kernel();
      each_tiles(context_, count, matmul_nanoseconds(rows, weights_.inputs * count, Weights::kBytes),
                 [&](std::int64_t begin, std::int64_t end) { kernel(product, begin, end); });
      const float* bias = bias_ == nullptr ? nullptr : bias_ + place;
      const std::int32_t* tokens = lists_.tokens() == nullptr ? nullptr : lists_.tokens() + place;
      context_.each(rows, rows * count / 4, [&](std::int64_t number) {
        best_[first + number].add({logits_ + number * count, bias, tokens, place, count}, wanted_);
      });
      for (std::int64_t at = 0; at < rows * scored_.count; ++at) {
        const std::int64_t number = at / scored_.count, there = places_[first * scored_.count + at] - place;
        if (there < 0 || there >= count) continue;
        const float logit = logits_[number * count + there] + (bias == nullptr ? 0.0f : bias[there]);
        best_logits_[row(first + number) * columns_ + wanted_ + at % scored_.count] = logit;
      }
    }
  }

  void write(std::int64_t number) {
    const std::int64_t at = row(number) * columns_;
    best_[number].write(wanted_, {tokens_ + at, log_probs_ + at, best_logits_ + at});
    for (std::int64_t scored = 0, column = at + wanted_; scored < scored_.count; ++scored, ++column) {
      const bool is_known = places_[number * scored_.count + scored] >= 0;
      if (!is_known) best_logits_[column] = kLowest;
      tokens_[column] = std::max(scored_.tokens[row(number) * scored_.count + scored], std::int64_t{0});
      log_probs_[column] = is_known ? best_logits_[column] - best_[number].normaliser() : kLowest;
    }
  }

  const Context& context_;
  const Weights& weights_;
  const Shortlists& lists_;
  const float *x_, *bias_;
  float scale_;
  ScoredTokens scored_;
  std::int64_t wanted_, columns_;
  std::int64_t* tokens_;
  float *log_probs_, *best_logits_;
  float* logits_;              // (rows at once, tokens at once)
  TopK* best_;                 // (rows at once)
  std::int64_t* places_;       // (rows at once, scored tokens): their rows of the table, −1 for none
  const std::int64_t* order_;  // (rows): those of one list one after the other
  float* gathered_ = nullptr;  // (rows at once, inputs), where this is not the order that they have
  std::int64_t begin_ = 0;     // of the rows that are worked on, in this order
};

// scale · x Wᵀ + b: x (rows, inputs), perhaps a bias (vocabulary): the `candidates` (1) largest of each row, best first, and
// behind them the scored tokens in their order, −∞ for none and for what the row's shortlist lacks. `given` is the number of
// the input `candidates`, behind which all others stand.
template <class Weights>
void find_best(const Context& context, const Tensor& x, const Weights& weights, float scale, std::size_t given) {
  const std::int64_t rows = x.sizes[0], vocabulary = weights.outputs;
  const Tensor candidates = context.input(given, 1);
  require(candidates.sizes[0] == 1, "candidates must be one number");
  const std::int64_t wanted = candidates.as<std::int64_t>()[0];
  const float* bias = bias_for(context.optional_input(given + 1, 1), vocabulary);
  require(wanted > 0 && wanted <= vocabulary, "candidates must be at least one and no more than the vocabulary");
  const Shortlists lists(context.optional_input(given + 3, 1), context.optional_input(given + 4, 2),
                         context.optional_input(given + 5, 1), vocabulary, rows);
  const ScoredTokens scored = scored_in(context.optional_input(given + 2, 2), rows, vocabulary, lists);
  BestSearch<Weights> search(context, weights, lists, x, bias, scale, scored, wanted);
  const std::int64_t most_rows = rows_at_once(vocabulary), parts = (rows + most_rows - 1) / most_rows;
  for (std::int64_t part = 0, row = 0; part < parts; ++part) {
    const std::int64_t some = (rows - row) / (parts - part);
    search.find(row, some);
    row += some;
  }
}

// In int8: x (rows, inputs), tiles, scale and offset (vocabulary), candidates (1), and perhaps a bias (vocabulary), scored
// tokens (rows, any number), and shortlists: tokens (vocabulary), ranges (lists, 4), and the list of each group (groups).
struct BestOutputs {
  static constexpr const char* kName = "BestOutputs";
  static constexpr ElementType kInputs[] = {
      ElementType::kFloat, ElementType::kInt8,  ElementType::kFloat, ElementType::kFloat, ElementType::kInt64,
      ElementType::kFloat, ElementType::kInt64, ElementType::kInt32, ElementType::kInt64, ElementType::kInt32};
  static constexpr ElementType kOutputs[] = {ElementType::kInt64, ElementType::kFloat, ElementType::kFloat};
  static constexpr std::size_t kRequired = 5;
  float scale;

  explicit BestOutputs(const Attributes& attributes) : scale(attributes.real_or(1.0f, "scale")) {}

  static void infer(const Shapes&) {}  // only a call knows the number of candidates

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const IntegerWeights weights(context.input(1, 2), context.input(2, 1), context.input(3, 1), x.sizes[1]);
    find_best(context, x, weights, scale, 4);
  }
};

// In float32: x (rows, inputs), tiles, candidates (1), and perhaps a bias (vocabulary), scored tokens (rows, any number),
// and shortlists as above.
struct FloatBestOutputs {
  static constexpr const char* kName = "FloatBestOutputs";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kInt64,
                                            ElementType::kFloat, ElementType::kInt64, ElementType::kInt32,
                                            ElementType::kInt64, ElementType::kInt32};
  static constexpr ElementType kOutputs[] = {ElementType::kInt64, ElementType::kFloat, ElementType::kFloat};
  static constexpr std::size_t kRequired = 3;
  std::int64_t vocabulary;
  float scale;

  explicit FloatBestOutputs(const Attributes& attributes)
      : vocabulary(attributes.integer("vocabulary", 1, kMostOutputs)), scale(attributes.real_or(1.0f, "scale")) {}

  static void infer(const Shapes&) {}  // only a call knows the number of candidates

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    find_best(context, x, FloatWeights(context.input(1, 2), x.sizes[1], vocabulary), scale, 2);
  }
};

}  // namespace dragoman
