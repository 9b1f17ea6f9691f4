#include "rows.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "simd.hpp"

namespace dragoman {
namespace {

constexpr std::int64_t kBlock = 64;
constexpr float kLeast = -std::numeric_limits<float>::infinity();

struct Candidate {
  float logit;
  std::int64_t token;

  bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : token < other.token;
  }
};

// A row of logits + bias; without a bias nothing is added.
template <bool kBiased>
struct Logits {
  const float* logits;
  const float* bias;

  DRAGOMAN_INLINE Floats several(std::int64_t at) const {
    return kBiased ? load(logits + at) + load(bias + at) : load(logits + at);
  }
  DRAGOMAN_INLINE float one(std::int64_t at) const { return kBiased ? logits[at] + bias[at] : logits[at]; }
};

template <bool kBiased>
DRAGOMAN_INLINE void find_peaks(const Logits<kBiased>& row, std::int64_t count, float* peaks) {
  std::int64_t block = 0, at = 0;
  for (; at + kBlock <= count; at += kBlock, ++block) {
    Floats a = row.several(at), b = row.several(at + kLanes);
    for (std::int64_t next = at + 2 * kLanes; next < at + kBlock; next += 2 * kLanes) {
      a = larger(a, row.several(next));
      b = larger(b, row.several(next + kLanes));
    }
    peaks[block] = largest(larger(a, b));
  }
  if (at < count) {
    float most = kLeast;
    for (; at < count; ++at) most = std::max(most, row.one(at));
    peaks[block] = most;
  }
}

template <bool kBiased>
DRAGOMAN_INLINE float add_exponentials(const Logits<kBiased>& row, std::int64_t count, float peak) {
  Floats a{}, b{};
  std::int64_t at = 0;
  for (; at + 2 * kLanes <= count; at += 2 * kLanes) {
    a += exponential(row.several(at) - peak);
    b += exponential(row.several(at + kLanes) - peak);
  }
  float total = sum(a + b);
  for (; at < count; ++at) total += std::exp(row.one(at) - peak);
  return total;
}

// The largest number of each block of logits + bias.
DRAGOMAN_EACH_PROCESSOR
void block_peaks(const float* logits, const float* bias, std::int64_t count, float* peaks) {
  if (bias == nullptr)
    find_peaks(Logits<false>{logits, bias}, count, peaks);
  else
    find_peaks(Logits<true>{logits, bias}, count, peaks);
}

// Σ e^(logit + bias − peak)
DRAGOMAN_EACH_PROCESSOR
float exponential_sum(const float* logits, const float* bias, std::int64_t count, float peak) {
  return bias == nullptr ? add_exponentials(Logits<false>{logits, bias}, count, peak)
                         : add_exponentials(Logits<true>{logits, bias}, count, peak);
}

}  // namespace

DRAGOMAN_EACH_PROCESSOR
void add_norm(const float* x, const float* update, const float* gamma, const float* beta, float epsilon, std::int64_t width,
              float* to) {
  Floats sums{};
  for (std::int64_t at = 0; at < width; at += kLanes) {
    const Floats added = load(x + at) + load(update + at);
    sums += added;
    store(to + at, added);
  }
  const float mean = sum(sums) / static_cast<float>(width);
  Floats squares{};
  for (std::int64_t at = 0; at < width; at += kLanes) {
    const Floats centred = load(to + at) - mean;
    squares += centred * centred;
  }
  const float factor = 1.0f / std::sqrt(sum(squares) / static_cast<float>(width) + epsilon);
  for (std::int64_t at = 0; at < width; at += kLanes)
    store(to + at, (load(to + at) - mean) * factor * load(gamma + at) + load(beta + at));
}

DRAGOMAN_EACH_PROCESSOR
void silu(const float* x, std::int64_t count, float* to) {
  std::int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    const Floats numbers = load(x + at);
    store(to + at, numbers / (exponential(-numbers) + 1.0f));
  }
  for (; at < count; ++at) to[at] = x[at] / (std::exp(-x[at]) + 1.0f);
}

void best_of(const float* logits, const float* bias, std::int64_t vocabulary, std::int64_t wanted, const Best& best) {
  thread_local std::vector<float> peaks, ordered;
  thread_local std::vector<Candidate> candidates;
  const std::int64_t blocks = (vocabulary + kBlock - 1) / kBlock;
  peaks.resize(static_cast<std::size_t>(blocks));
  block_peaks(logits, bias, vocabulary, peaks.data());
  const float peak = *std::max_element(peaks.begin(), peaks.end());
  // The `wanted` largest blocks hold `wanted` numbers that are no less than the least of their peaks.
  float least = wanted == 1 ? peak : kLeast;
  if (wanted > 1 && wanted <= blocks) {
    ordered = peaks;
    std::nth_element(ordered.begin(), ordered.begin() + (wanted - 1), ordered.end(), std::greater<float>());
    least = ordered[static_cast<std::size_t>(wanted - 1)];
  }
  candidates.clear();
  for (std::int64_t block = 0; block < blocks; ++block) {
    if (!(peaks[static_cast<std::size_t>(block)] >= least)) continue;
    const std::int64_t end = std::min((block + 1) * kBlock, vocabulary);
    for (std::int64_t token = block * kBlock; token < end; ++token)
      if (const float logit = logits[token] + (bias == nullptr ? 0.0f : bias[token]); logit >= least) candidates.push_back({logit, token});
  }
  // A model that computes no numbers has no best token; what it says is for its caller to refuse.
  while (static_cast<std::int64_t>(candidates.size()) < wanted) candidates.push_back({kLeast, 0});
  std::partial_sort(candidates.begin(), candidates.begin() + wanted, candidates.end());
  const float normaliser = peak + std::log(exponential_sum(logits, bias, vocabulary, peak));
  for (std::int64_t at = 0; at < wanted; ++at) {
    const Candidate& candidate = candidates[static_cast<std::size_t>(at)];
    best.tokens[at] = candidate.token;
    best.logits[at] = candidate.logit;
    best.log_probs[at] = candidate.logit - normaliser;
  }
}

}  // namespace dragoman
