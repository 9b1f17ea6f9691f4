// softmax(q Kᵀ · scale + bias) V. Scores lie as (keys, heads), heads side by side: softmax needs no sum across lanes.
#include "declared.hpp"
#include "vector.hpp"

namespace dragoman::DRAGOMAN_PROCESSOR {
namespace {

constexpr int kRegisters = kLanes == 16 ? 16 : 8;  // that values are summed in; others hold what is read

std::int64_t padded(std::int64_t heads) { return round_up(heads, kEight); }

// A head whose size is a multiple of a vector's.
template <class Vector>
struct VectorHeads {
  // q · k · scale of eight heads from `head` on. Those beyond the last are 0 and never used.
  static DRAGOMAN_INLINE Eight scores(const Heads& heads, std::int64_t head, const float* query, const float* key) {
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
    return reduce_sums(products) * heads.scale;
  }

  // Some registers of the result, from `first` on: Σ over keys of a head's weight times its value.
  template <int kCount>
  static DRAGOMAN_INLINE void add_values(const Attention& given, std::int64_t first, float* output) {
    const std::int64_t stride = padded(given.heads.count), keys = given.key_count;
    const float* weights[kCount];
    repeat<kCount>([&](auto number) DRAGOMAN_INLINED {
      weights[number] = given.scores + (first + number * lanes_of<Vector>) / given.heads.size;
    });
    Vector sums[kCount] = {};
    for (std::int64_t key = 0; key < keys; ++key) {
      const float* value = given.keys[key] + given.value_offset + first;
      repeat<kCount>([&](auto number) DRAGOMAN_INLINED {
        sums[number] += load<Vector>(value + number * lanes_of<Vector>) * weights[number][key * stride];
      });
    }
    repeat<kCount>([&](auto number) DRAGOMAN_INLINED {
      store(output + first + number * lanes_of<Vector>, sums[number] * weights[number][keys * stride]);
    });
  }

  static DRAGOMAN_INLINE void weighted_values(const Attention& given, float* output) {
    constexpr std::int64_t kMany = kRegisters * lanes_of<Vector>, kFew = 4 * lanes_of<Vector>;
    const std::int64_t width = given.heads.width();
    std::int64_t at = 0;
    for (; at + kMany <= width; at += kMany) add_values<kRegisters>(given, at, output);
    for (; at + kFew <= width; at += kFew) add_values<4>(given, at, output);
    for (; at < width; at += lanes_of<Vector>) add_values<1>(given, at, output);
  }
};

// A head of any size.
struct ScalarHeads {
  static Eight scores(const Heads& heads, std::int64_t head, const float* query, const float* key) {
    Eight scores{};
    for (std::int64_t number = 0; number < kEight && head + number < heads.count; ++number) {
      const float *q = query + (head + number) * heads.size, *k = key + (head + number) * heads.size;
      float product = 0;
      for (std::int64_t at = 0; at < heads.size; ++at) product += q[at] * k[at];
      scores[number] = product * heads.scale;
    }
    return scores;
  }

  static void weighted_values(const Attention& given, float* output) {
    const std::int64_t stride = padded(given.heads.count), size = given.heads.size;
    for (std::int64_t at = 0; at < given.heads.width(); ++at) {
      const float* weights = given.scores + at / size;
      float sum = 0;
      for (std::int64_t key = 0; key < given.key_count; ++key)
        sum += given.keys[key][given.value_offset + at] * weights[key * stride];
      output[at] = sum * weights[given.key_count * stride];
    }
  }
};

// The bias of eight heads from `head` on. In the lanes beyond the last head is anything: they are never used.
DRAGOMAN_INLINE Eight bias_of(const RelativeBias& bias, std::int64_t heads, std::int64_t head, std::int64_t distance) {
  const std::int64_t at = bias.zero + distance, last = bias.rows - 1;
  const std::int64_t first = (at < 0 ? 0 : at > last ? last : at) * heads + head, count = bias.rows * heads - first;
  if (count >= kEight) return load<Eight>(bias.values + first);
  Eight numbers{};
  for (std::int64_t lane = 0; lane < count; ++lane) numbers[lane] = bias.values[first + lane];
  return numbers;
}

// Scores (keys, padded heads) become powers of e; the inverse of their sum is written behind them.
DRAGOMAN_INLINE void softmax(float* scores, std::int64_t keys, std::int64_t stride) {
  for (std::int64_t head = 0; head < stride; head += kEight) {
    float *first = scores + head, *inverse = first + keys * stride;
    Eight max = load<Eight>(first), total{};
    for (std::int64_t key = 1; key < keys; ++key) max = max_of(max, load<Eight>(first + key * stride));
    for (std::int64_t key = 0; key < keys; ++key) {
      const Eight power = exponential_of_nonpositive(load<Eight>(first + key * stride) - max);
      total += power;
      store(first + key * stride, power);
    }
    store(inverse, 1.0f / total);
  }
}

template <class Kind, bool kBiased>
DRAGOMAN_INLINE void attend_with(const Attention& given) {
  const std::int64_t stride = padded(given.heads.count), width = given.heads.width();
  for (std::int64_t number = 0; number < given.queries; ++number) {
    const float* query = given.query + number * given.query_stride;
    for (std::int64_t token = 0; token < given.key_count; ++token) {
      const float* key = given.keys[token];
      for (std::int64_t head = 0; head < stride; head += kEight) {
        Eight scores = Kind::scores(given.heads, head, query, key);
        if constexpr (kBiased) scores += bias_of(given.bias, given.heads.count, head, token - given.query_position - number);
        store(given.scores + token * stride + head, scores);
      }
      for (std::int64_t at = 0; at < width; at += 16) __builtin_prefetch(key + given.value_offset + at);
    }
    softmax(given.scores, given.key_count, stride);
    Kind::weighted_values(given, given.output + number * given.output_stride);
  }
}

template <class Kind>
DRAGOMAN_INLINE void attend_as(const Attention& attention) {
  if (attention.bias.values == nullptr)
    attend_with<Kind, false>(attention);
  else
    attend_with<Kind, true>(attention);
}

}  // namespace

void attend(const Attention& attention) {
  if (attention.heads.size % kLanes == 0)
    attend_as<VectorHeads<Floats>>(attention);
  else if (attention.heads.size % kEight == 0)
    attend_as<VectorHeads<Eight>>(attention);
  else
    attend_as<ScalarHeads>(attention);
}

}  // namespace dragoman::DRAGOMAN_PROCESSOR
