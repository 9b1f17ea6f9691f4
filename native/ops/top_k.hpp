#pragma once

#include <cstdint>

namespace dragoman {

// Where the results of a row go.
struct Best {
  std::int64_t* tokens;
  float* log_probs;
  float* logits;
};

// The `wanted` largest of logits + bias, largest first, of equal ones the lower token first, with their log-probabilities. `bias` may be null.
void top_k(const float* logits, const float* bias, std::int64_t vocabulary, std::int64_t wanted, const Best& best);

}  // namespace dragoman
