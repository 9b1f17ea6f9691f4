#include "attention.hpp"

#include "simd.hpp"

namespace dragoman {
namespace {

// Scores to weights that sum to 1, in place; there is room for eight numbers beyond the last.
DRAGOMAN_INLINE void soften(float* scores, std::int64_t seen) {
  for (std::int64_t beyond = seen; beyond % kLanes; ++beyond) scores[beyond] = -INFINITY;
  Floats most = load(scores);
  for (std::int64_t at = kLanes; at < seen; at += kLanes) most = larger(most, load(scores + at));
  const float peak = largest(most);
  Floats total{};
  for (std::int64_t at = 0; at < seen; at += kLanes) {
    const Floats weight = exponential(load(scores + at) - peak);
    total += weight;
    store(scores + at, weight);
  }
  const float part = 1.0f / sum(total);
  for (std::int64_t at = 0; at < seen; at += kLanes) store(scores + at, load(scores + at) * part);
}

// kQueries of them at once share what is read of keys and values. Tokens are the outer loop, because a token's key lies
// in one piece: memory is read in order, and that is what this takes its time for.
template <int kQueries>
DRAGOMAN_INLINE void attend_some(const Heads& heads, const float* query, std::int64_t query_stride,
                                 const float* const* tokens, std::int64_t seen, std::int64_t value_offset, float* scores,
                                 float* answer, std::int64_t answer_stride) {
  const std::int64_t room = seen + kLanes, size = heads.size;
  for (std::int64_t token = 0; token < seen; ++token) {
    const float* key = tokens[token];
    float* score = scores + token;
    for (std::int64_t head = 0; head < heads.count; ++head) {
      const std::int64_t first = head * size;
      Floats products[kQueries] = {};
      for (std::int64_t at = first; at < first + size; at += kLanes) {
        const Floats part = load(key + at);
        for (int q = 0; q < kQueries; ++q) products[q] += part * load(query + q * query_stride + at);
      }
      for (int q = 0; q < kQueries; ++q, score += room) *score = sum(products[q]) * heads.scale;
    }
    for (std::int64_t at = 0; at < heads.width(); at += 16) __builtin_prefetch(key + value_offset + at);
  }
  for (std::int64_t row = 0; row < heads.count * kQueries; ++row) soften(scores + row * room, seen);
  for (int q = 0; q < kQueries; ++q)
    for (std::int64_t at = 0; at < heads.width(); at += kLanes) store(answer + q * answer_stride + at, Floats{});
  for (std::int64_t token = 0; token < seen; ++token) {
    const float* value = tokens[token] + value_offset;
    const float* weight = scores + token;
    for (std::int64_t head = 0; head < heads.count; ++head) {
      const std::int64_t first = head * size;
      Floats weights[kQueries];
      for (int q = 0; q < kQueries; ++q, weight += room) weights[q] = all(*weight);
      for (std::int64_t at = first; at < first + size; at += kLanes) {
        const Floats part = load(value + at);
        for (int q = 0; q < kQueries; ++q) {
          float* to = answer + q * answer_stride + at;
          store(to, load(to) + part * weights[q]);
        }
      }
    }
  }
}

}  // namespace

DRAGOMAN_EACH_PROCESSOR
void attend(const Heads& heads, const float* query, std::int64_t query_stride, std::int64_t queries,
            const float* const* tokens, std::int64_t seen, std::int64_t value_offset, float* scores, float* answer,
            std::int64_t answer_stride) {
  std::int64_t done = 0;
  for (; done + 4 <= queries; done += 4)
    attend_some<4>(heads, query + done * query_stride, query_stride, tokens, seen, value_offset, scores,
                   answer + done * answer_stride, answer_stride);
  for (; done < queries; ++done)
    attend_some<1>(heads, query + done * query_stride, query_stride, tokens, seen, value_offset, scores,
                   answer + done * answer_stride, answer_stride);
}

}  // namespace dragoman
