// max and Σ e^(x − max) of a row of logits, in one pass over memory.
#include "declared.hpp"
#include "vector.hpp"

namespace dragoman::DRAGOMAN_PROCESSOR {
namespace {

// A row of logits + bias; without a bias nothing is added.
template <bool kBiased>
struct Logits {
  const float* logits;
  const float* bias;

  DRAGOMAN_INLINE Floats vector(std::int64_t at) const {
    return kBiased ? load(logits + at) + load(bias + at) : load(logits + at);
  }
  DRAGOMAN_INLINE float scalar(std::int64_t at) const { return kBiased ? logits[at] + bias[at] : logits[at]; }
};

template <bool kBiased>
DRAGOMAN_INLINE float find_block_maxima(const Logits<kBiased>& row, std::int64_t begin, std::int64_t end,
                                        float* block_maxima) {
  Floats running = broadcast(-INFINITY);
  std::int64_t block = begin / kBlock, at = begin;
  for (; at + kBlock <= end; at += kBlock, ++block) {
    Floats a = row.vector(at), b = row.vector(at + kLanes);
    for (std::int64_t next = at + 2 * kLanes; next < at + kBlock; next += 2 * kLanes) {
      a = max_of(a, row.vector(next));
      b = max_of(b, row.vector(next + kLanes));
    }
    a = max_of(a, b);
    block_maxima[block] = reduce_max(a);
    running = max_of(running, a);
  }
  float max = reduce_max(running);
  if (at < end) {
    float last = -INFINITY;
    for (; at < end; ++at) last = row.scalar(at) > last ? row.scalar(at) : last;
    block_maxima[block] = last;
    max = last > max ? last : max;
  }
  return max;
}

template <bool kBiased>
DRAGOMAN_INLINE float add_exponentials(const Logits<kBiased>& row, std::int64_t begin, std::int64_t end, float max) {
  Floats a{}, b{};
  std::int64_t at = begin;
  for (; at + 2 * kLanes <= end; at += 2 * kLanes) {
    a += exponential_of_nonpositive(row.vector(at) - max);
    b += exponential_of_nonpositive(row.vector(at + kLanes) - max);
  }
  float total = reduce_sum(a + b);
  for (; at < end; ++at) total += expf(row.scalar(at) - max);
  return total;
}

template <bool kBiased>
DRAGOMAN_INLINE LogSumExp log_sum_exp_of(LogSumExp found, const Logits<kBiased>& row, std::int64_t count,
                                         float* block_maxima) {
  for (std::int64_t begin = 0; begin < count; begin += kLogitsTogether) {
    const std::int64_t end = begin + kLogitsTogether < count ? begin + kLogitsTogether : count;
    const float max = find_block_maxima(row, begin, end, block_maxima);
    if (max == -INFINITY) continue;
    if (!(max <= found.max)) {
      found.sum *= expf(found.max - max);
      found.max = max;
    }
    found.sum += add_exponentials(row, begin, end, found.max);
  }
  return found;
}

}  // namespace

LogSumExp log_sum_exp(LogSumExp before, const float* logits, const float* bias, std::int64_t count, float* block_maxima) {
  return bias == nullptr ? log_sum_exp_of(before, Logits<false>{logits, bias}, count, block_maxima)
                         : log_sum_exp_of(before, Logits<true>{logits, bias}, count, block_maxima);
}

}  // namespace dragoman::DRAGOMAN_PROCESSOR
