// What is done to each row of numbers by itself.
#pragma once

#include <cstdint>

namespace dragoman {

// to = γ · (x + update − mean) / sqrt(variance + ε) + β
void add_norm(const float* x, const float* update, const float* gamma, const float* beta, float epsilon, std::int64_t width,
              float* to);

// to = x · sigmoid(x)
void silu(const float* x, std::int64_t count, float* to);

struct Best {
  std::int64_t* tokens;
  float* log_probs;
  float* logits;
};

// The `wanted` largest of logits + bias, largest first, the first of equals first. `bias` may be null.
void best_of(const float* logits, const float* bias, std::int64_t vocabulary, std::int64_t wanted, const Best& best);

}  // namespace dragoman
