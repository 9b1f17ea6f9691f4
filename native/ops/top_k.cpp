#include "top_k.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels.hpp"

namespace dragoman {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Candidate {
  float logit;
  std::int64_t token;

  bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : token < other.token;
  }
};

}  // namespace

void top_k(const float* logits, const float* bias, std::int64_t vocabulary, std::int64_t wanted, const Best& best) {
  thread_local std::vector<float> block_maxima, ordered;
  thread_local std::vector<Candidate> candidates;
  const std::int64_t blocks = (vocabulary + kBlock - 1) / kBlock;
  block_maxima.resize(static_cast<std::size_t>(blocks));
  const LogSumExp found = kernels().log_sum_exp(logits, bias, vocabulary, block_maxima.data());
  // The `wanted` largest blocks hold `wanted` numbers that are no less than the least of their block_maxima.
  float least = wanted == 1 ? found.max : kLowest;
  if (wanted > 1 && wanted <= blocks) {
    ordered = block_maxima;
    std::nth_element(ordered.begin(), ordered.begin() + (wanted - 1), ordered.end(), std::greater<float>());
    least = ordered[static_cast<std::size_t>(wanted - 1)];
  }
  candidates.clear();
  for (std::int64_t block = 0; block < blocks; ++block) {
    if (!(block_maxima[static_cast<std::size_t>(block)] >= least)) continue;
    const std::int64_t end = std::min((block + 1) * kBlock, vocabulary);
    for (std::int64_t token = block * kBlock; token < end; ++token)
      if (const float logit = logits[token] + (bias == nullptr ? 0.0f : bias[token]); logit >= least)
        candidates.push_back({logit, token});
  }
  // Logits that are no numbers have no largest; the caller refuses what comes of them.
  while (static_cast<std::int64_t>(candidates.size()) < wanted) candidates.push_back({kLowest, 0});
  std::partial_sort(candidates.begin(), candidates.begin() + wanted, candidates.end());
  const float normaliser = found.max + std::log(found.sum);
  for (std::int64_t at = 0; at < wanted; ++at) {
    const Candidate& candidate = candidates[static_cast<std::size_t>(at)];
    best.tokens[at] = candidate.token;
    best.logits[at] = candidate.logit;
    best.log_probs[at] = candidate.logit - normaliser;
  }
}

}  // namespace dragoman
