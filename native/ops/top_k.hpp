// The largest logits of a row, of which a part is known at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels.hpp"

namespace dragoman {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Where the results of a row go.
struct Best {
  std::int64_t* tokens;
  float* log_probs;
  float* logits;
};

// The logits + bias (which may be null) of `count` tokens: `tokens`, or without them those from `first` on.
struct Logits {
  const float* logits;
  const float* bias;
  const std::int32_t* tokens;
  std::int64_t first, count;
};

// Each has cache lines of its own, because threads search neighbouring rows.
class alignas(64) TopK {
 public:
  void clear();

  // The `wanted` largest of all that are added are kept.
  void add(const Logits& some, std::int64_t wanted);

  // The `wanted` largest, best first, of equal ones the lower token first. Logits that are no numbers have no largest: token
  // 0 and −∞ stand for what is missing then.
  void write(std::int64_t wanted, const Best& best);

  // What a logit has more than its log-probability.
  float normaliser() const;

 private:
  struct Candidate {
    float logit;
    std::int64_t token;

    bool operator<(const Candidate& other) const { return logit != other.logit ? logit > other.logit : token < other.token; }
  };

  // What a logit must reach to be among the `wanted` largest, by the maxima of the blocks that it is in.
  float least_wanted(const std::vector<float>& maxima, std::int64_t wanted) const;
  void keep_best(std::int64_t wanted);

  std::vector<Candidate> candidates_;
  float threshold_ = kLowest;       // no logit below it is among the best
  LogSumExp total_{kLowest, 0.0f};  // of all logits
};

}  // namespace dragoman
