#pragma once

#include <cstdint>

namespace dragoman {

struct Best {
  std::int64_t* tokens;
  float* log_probs;
  float* logits;
};

// The `wanted` largest of logits + bias, largest first, the first of equals first. `bias` may be null.
void best_of(const float* logits, const float* bias, std::int64_t vocabulary, std::int64_t wanted, const Best& best);

}  // namespace dragoman
