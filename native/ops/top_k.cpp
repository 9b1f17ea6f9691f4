#include "top_k.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace dragoman {
void TopK::clear() {
  candidates_.clear();
  threshold_ = kLowest;
  total_ = {kLowest, 0.0f};
}

void TopK::add(const Logits& some, std::int64_t wanted) {
  const auto [logits, bias, tokens, first, count] = some;
  thread_local std::vector<float> maxima;
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  maxima.resize(static_cast<std::size_t>(blocks));
  total_ = kernels().log_sum_exp(total_, logits, bias, count, maxima.data());
  // Where the best so far are known, the last of them is what others must reach.
  const float least = threshold_ > kLowest ? threshold_ : least_wanted(maxima, wanted);
  const std::size_t before = candidates_.size();
  for (std::int64_t block = 0; block < blocks; ++block) {
    if (!(maxima[static_cast<std::size_t>(block)] >= least)) continue;
    const std::int64_t end = std::min((block + 1) * kBlock, count);
    for (std::int64_t at = block * kBlock; at < end; ++at)
      if (const float logit = logits[at] + (bias == nullptr ? 0.0f : bias[at]); logit >= least)
        candidates_.push_back({logit, tokens == nullptr ? first + at : tokens[at]});
  }
  if (candidates_.size() > before) keep_best(wanted);
}

float TopK::least_wanted(const std::vector<float>& maxima, std::int64_t wanted) const {
  if (wanted == 1) return total_.max;
  if (wanted > static_cast<std::int64_t>(maxima.size())) return kLowest;
  // The `wanted` largest blocks hold `wanted` numbers that are no less than the least of their maxima.
  thread_local std::vector<float> ordered;
  ordered = maxima;
  std::nth_element(ordered.begin(), ordered.begin() + (wanted - 1), ordered.end(), std::greater<>());
  return ordered[static_cast<std::size_t>(wanted - 1)];
}

void TopK::keep_best(std::int64_t wanted) {
  if (static_cast<std::int64_t>(candidates_.size()) < wanted) return;
  const auto last = candidates_.begin() + (wanted - 1);
  std::nth_element(candidates_.begin(), last, candidates_.end());
  threshold_ = last->logit;
  candidates_.resize(static_cast<std::size_t>(wanted));
}

float TopK::normaliser() const { return total_.max + std::log(total_.sum); }

void TopK::write(std::int64_t wanted, const Best& best) {
  candidates_.resize(static_cast<std::size_t>(wanted), Candidate{kLowest, 0});
  std::sort(candidates_.begin(), candidates_.end());
  const float total = normaliser();
  for (std::int64_t at = 0; at < wanted; ++at) {
    const Candidate& candidate = candidates_[static_cast<std::size_t>(at)];
    best.tokens[at] = candidate.token;
    best.logits[at] = candidate.logit;
    best.log_probs[at] = candidate.logit - total;
  }
}

}  // namespace dragoman
