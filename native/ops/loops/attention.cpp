// softmax(q Kᵀ · scale) V. Scores lie as (tokens, heads), heads side by side: their softmax needs no sum across lanes.
#include "declared.hpp"
#include "lanes.hpp"

namespace dragoman::DRAGOMAN_PROCESSOR {
namespace {

constexpr int kRegisters = kLanes == 16 ? 16 : 8;  // that answers are added up in; others hold what is read

std::int64_t padded(std::int64_t heads) { return (heads + kEight - 1) / kEight * kEight; }

// q · k · scale of eight heads from `head` on. Those beyond the last are 0, and nobody looks at them.
template <class Vector>
DRAGOMAN_INLINE Eight scores_of(const Heads& heads, std::int64_t head, const float* query, const float* key) {
  Vector products[kEight] = {};
  const std::int64_t some = heads.count - head < kEight ? heads.count - head : kEight;
  const auto multiply = [&](auto number) DRAGOMAN_INLINED {
    const float *q = query + (head + number) * heads.size, *k = key + (head + number) * heads.size;
    for (std::int64_t at = 0; at < heads.size; at += lanes_of<Vector>)
      products[number] += load<Vector>(q + at) * load<Vector>(k + at);
  };
  repeat<kEight>([&](auto number) DRAGOMAN_INLINED {
    if (number < some) multiply(number);
  });
  return sums_of(products) * heads.scale;
}

// Scores (seen, padded heads) become powers of e; what they must be divided by is written behind them, inverted.
DRAGOMAN_INLINE void soften(float* scores, std::int64_t seen, std::int64_t stride) {
  for (std::int64_t head = 0; head < stride; head += kEight) {
    float *first = scores + head, *inverse = first + seen * stride;
    Eight most = load<Eight>(first), total{};
    for (std::int64_t token = 1; token < seen; ++token) most = larger(most, load<Eight>(first + token * stride));
    for (std::int64_t token = 0; token < seen; ++token) {
      const Eight power = decay(load<Eight>(first + token * stride) - most);
      total += power;
      store(first + token * stride, power);
    }
    store(inverse, 1.0f / total);
  }
}

// Some registers of an answer, from `first` on: Σ over tokens of a head's weight times its value.
template <class Vector, int kCount>
DRAGOMAN_INLINE void add_values(const Attention& given, std::int64_t first, float* answer) {
  const std::int64_t stride = padded(given.heads.count), seen = given.seen;
  const float* weights[kCount];
  repeat<kCount>([&](auto number) DRAGOMAN_INLINED {
    weights[number] = given.scores + (first + number * lanes_of<Vector>) / given.heads.size;
  });
  Vector sums[kCount] = {};
  for (std::int64_t token = 0; token < seen; ++token) {
    const float* value = given.tokens[token] + given.value_offset + first;
    repeat<kCount>([&](auto number) DRAGOMAN_INLINED {
      sums[number] += load<Vector>(value + number * lanes_of<Vector>) * weights[number][token * stride];
    });
  }
  repeat<kCount>([&](auto number) DRAGOMAN_INLINED {
    store(answer + first + number * lanes_of<Vector>, sums[number] * weights[number][seen * stride]);
  });
}

template <class Vector>
DRAGOMAN_INLINE void attend_with(const Attention& given) {
  const std::int64_t stride = padded(given.heads.count), width = given.heads.width();
  constexpr std::int64_t kMany = kRegisters * lanes_of<Vector>, kFew = 4 * lanes_of<Vector>;
  for (std::int64_t number = 0; number < given.queries; ++number) {
    const float* query = given.query + number * given.query_stride;
    float* answer = given.answer + number * given.answer_stride;
    for (std::int64_t token = 0; token < given.seen; ++token) {
      const float* key = given.tokens[token];
      for (std::int64_t head = 0; head < stride; head += kEight)
        store(given.scores + token * stride + head, scores_of<Vector>(given.heads, head, query, key));
      for (std::int64_t at = 0; at < width; at += 16) __builtin_prefetch(key + given.value_offset + at);
    }
    soften(given.scores, given.seen, stride);
    std::int64_t at = 0;
    for (; at + kMany <= width; at += kMany) add_values<Vector, kRegisters>(given, at, answer);
    for (; at + kFew <= width; at += kFew) add_values<Vector, 4>(given, at, answer);
    for (; at < width; at += lanes_of<Vector>) add_values<Vector, 1>(given, at, answer);
  }
}

}  // namespace

void attend(const Attention& attention) {
  if (attention.heads.size % kLanes == 0)
    attend_with<Floats>(attention);
  else
    attend_with<Eight>(attention);
}

}  // namespace dragoman::DRAGOMAN_PROCESSOR
