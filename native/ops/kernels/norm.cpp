// LayerNorm and RMSNorm of a row, or of the sum of two.
#include "declared.hpp"
#include "vector.hpp"

namespace dragoman::DRAGOMAN_PROCESSOR {
namespace {

// Σ (x − mean)² of a row.
DRAGOMAN_INLINE float centred_squares(const float* x, std::int64_t width, float mean) {
  const std::int64_t whole = width / kLanes * kLanes, rest = width - whole;
  Floats squares{};
  for (std::int64_t at = 0; at < whole; at += kLanes) {
    const Floats centred = load(x + at) - mean;
    squares += centred * centred;
  }
  if (rest) {
    const Floats centred = load_some(x + whole, rest, mean) - mean;
    squares += centred * centred;
  }
  return reduce_sum(squares);
}

// x + update is written to `sum`; the sum of all its elements.
DRAGOMAN_INLINE float add(const float* x, const float* update, std::int64_t width, float* sum) {
  const std::int64_t whole = width / kLanes * kLanes, rest = width - whole;
  Floats total{};
  for (std::int64_t at = 0; at < whole; at += kLanes) {
    const Floats added = load(x + at) + load(update + at);
    total += added;
    store(sum + at, added);
  }
  if (rest) {
    const Floats added = load_some(x + whole, rest, 0.0f) + load_some(update + whole, rest, 0.0f);
    total += added;
    store_some(sum + whole, rest, added);
  }
  return reduce_sum(total);
}

DRAGOMAN_INLINE float total_of(const float* x, std::int64_t width) {
  const std::int64_t whole = width / kLanes * kLanes, rest = width - whole;
  Floats total{};
  for (std::int64_t at = 0; at < whole; at += kLanes) total += load(x + at);
  if (rest) total += load_some(x + whole, rest, 0.0f);
  return reduce_sum(total);
}

// (x − mean) · factor · γ + β
template <bool kBeta>
DRAGOMAN_INLINE void scale(const float* x, float mean, float factor, const NormWeights& weights, std::int64_t width,
                           float* output) {
  std::int64_t at = 0;
  for (; at + kLanes <= width; at += kLanes) {
    const Floats y = (load(x + at) - mean) * factor * load(weights.gamma + at);
    if constexpr (kBeta)
      store(output + at, y + load(weights.beta + at));
    else
      store(output + at, y);
  }
  for (; at < width; ++at) {
    const float y = (x[at] - mean) * factor * weights.gamma[at];
    output[at] = kBeta ? y + weights.beta[at] : y;
  }
}

}  // namespace

void norm(const float* x, const float* update, const NormWeights& weights, std::int64_t width, float* sum, float* output) {
  const float total = update != nullptr ? add(x, update, width, sum) : weights.rms ? 0.0f : total_of(x, width);
  const float* of = update == nullptr ? x : sum;
  const float mean = weights.rms ? 0.0f : total / static_cast<float>(width);
  const float factor = 1.0f / sqrtf(centred_squares(of, width, mean) / static_cast<float>(width) + weights.epsilon);
  if (weights.beta == nullptr)
    scale<false>(of, mean, factor, weights, width, output);
  else
    scale<true>(of, mean, factor, weights, width, output);
}

}  // namespace dragoman::DRAGOMAN_PROCESSOR
