// softmax(q Kᵀ · scale) V of all heads, for queries that see the same tokens.
#pragma once

#include <cstdint>

namespace dragoman {

struct Heads {
  std::int64_t count;
  std::int64_t size;  // a multiple of eight
  float scale;

  std::int64_t width() const { return count * size; }
};

// Queries (queries, heads · size) with `query_stride` numbers from one to the next, and their answers likewise.
// Token t has its key at tokens[t] and its value `value_offset` numbers further on.
// `scores` has room for 4 · heads · (seen + 8) numbers.
void attend(const Heads& heads, const float* query, std::int64_t query_stride, std::int64_t queries,
            const float* const* tokens, std::int64_t seen, std::int64_t value_offset, float* scores, float* answer,
            std::int64_t answer_stride);

}  // namespace dragoman
