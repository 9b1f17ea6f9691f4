// How a tile of weights is multiplied with a row: how much is read at once, and how it is summed.
//
// Each kind of numbers has the same members. `kInputs` inputs are taken at once: `Weights` are theirs in a tile, `Broadcast`
// is a row's, spread over all lanes. `Sums` are the sixteen of a tile for a row, read a `part` at a time in the end; as many
// as `kSums` registers hold are kept. A row's integers are at most `kMostInput`, weights at most 127: sums never saturate.
#pragma once

#include "../kernels.hpp"
#include "vector.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dragoman::DRAGOMAN_PROCESSOR {

constexpr int kParts = kTile / kLanes;  // registers that a tile's sums take

struct FloatTile {
  struct Sums {
    Floats part[kParts];
  };
  using Weights = Sums;
  using Broadcast = Floats;
  static constexpr std::int64_t kInputs = 1;
  static constexpr int kSums = kLanes == 16 ? 24 : 12, kMostRows = 6;

  static DRAGOMAN_INLINE Weights weights(const float* tile) {
    Weights read;
    repeat<kParts>([&](auto part) DRAGOMAN_INLINED { read.part[part] = load(tile + part * kLanes); });
    return read;
  }
  static DRAGOMAN_INLINE Broadcast spread(const float* x) { return broadcast(*x); }
  static DRAGOMAN_INLINE void add(Sums& sums, const Weights& weights, Broadcast x) {
    repeat<kParts>([&](auto part) DRAGOMAN_INLINED { sums.part[part] += weights.part[part] * x; });
  }
  static DRAGOMAN_INLINE Floats part(const Sums& sums, int number) { return sums.part[number]; }
};

#if defined(__AVX512VNNI__)

// One instruction for each four products.
struct IntegerTile {
  using Sums = __m512i;
  using Weights = __m512i;
  using Broadcast = __m512i;
  static constexpr std::int64_t kInputs = kQuad;
  static constexpr int kSums = 24, kMostRows = 6, kMostInput = 255;

  static DRAGOMAN_INLINE Weights weights(const std::int8_t* tile) { return _mm512_loadu_si512(tile); }
  static DRAGOMAN_INLINE Broadcast spread(const std::uint8_t* x) {
    std::int32_t four;
    std::memcpy(&four, x, sizeof four);
    return _mm512_set1_epi32(four);
  }
  // Not _mm512_dpbusd_epi32: GCC 12 copies its sums to other registers and back, which takes as long as the product.
  static DRAGOMAN_INLINE void add(Sums& sums, Weights weights, Broadcast x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(weights));
  }
  static DRAGOMAN_INLINE Ints part(Sums sums, int) { return reinterpret_cast<Ints>(sums); }
};

#elif defined(__AVX2__)

// Two products are added in sixteen bits before they are widened: they fit if a row's integers have seven bits.
struct IntegerTile {
  struct Sums {
    __m256i low, high;
  };
  struct Weights {
    __m256i low_1, high_1, low_2, high_2;
  };
  struct Broadcast {
    __m256i first, second;
  };
  static constexpr std::int64_t kInputs = 2 * kQuad;
  static constexpr int kSums = 8, kMostRows = 4, kMostInput = 127;

  static DRAGOMAN_INLINE Weights weights(const std::int8_t* tile) {
    const auto* read = reinterpret_cast<const __m256i*>(tile);
    return {_mm256_loadu_si256(read), _mm256_loadu_si256(read + 1), _mm256_loadu_si256(read + 2),
            _mm256_loadu_si256(read + 3)};
  }
  static DRAGOMAN_INLINE Broadcast spread(const std::uint8_t* x) {
    std::int32_t fours[2];
    std::memcpy(fours, x, sizeof fours);
    return {_mm256_set1_epi32(fours[0]), _mm256_set1_epi32(fours[1])};
  }
  static DRAGOMAN_INLINE void add(Sums& sums, const Weights& weights, const Broadcast& x) {
    sums.low = _mm256_add_epi32(sums.low, products(x.first, weights.low_1));
    sums.high = _mm256_add_epi32(sums.high, products(x.first, weights.high_1));
    sums.low = _mm256_add_epi32(sums.low, products(x.second, weights.low_2));
    sums.high = _mm256_add_epi32(sums.high, products(x.second, weights.high_2));
  }
  static DRAGOMAN_INLINE Ints part(const Sums& sums, int number) {
    return reinterpret_cast<Ints>(number == 0 ? sums.low : sums.high);
  }

 private:
  static DRAGOMAN_INLINE __m256i products(__m256i x, __m256i weights) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(x, weights), _mm256_set1_epi16(1));
  }
};

#else

struct IntegerTile {
  struct Sums {
    std::int32_t sums[kTile];
  };
  using Weights = const std::int8_t*;
  using Broadcast = const std::uint8_t*;
  static constexpr std::int64_t kInputs = kQuad;
  static constexpr int kSums = 2, kMostRows = 1, kMostInput = 255;

  static DRAGOMAN_INLINE Weights weights(const std::int8_t* tile) { return tile; }
  static DRAGOMAN_INLINE Broadcast spread(const std::uint8_t* x) { return x; }
  static DRAGOMAN_INLINE void add(Sums& sums, Weights weights, Broadcast x) {
    for (int output = 0; output < kTile; ++output)
      for (int input = 0; input < kQuad; ++input) sums.sums[output] += weights[output * kQuad + input] * x[input];
  }
  static DRAGOMAN_INLINE Ints part(const Sums& sums, int number) {
    Ints some;
    std::memcpy(&some, sums.sums + number * kLanes, sizeof some);
    return some;
  }
};

#endif

}  // namespace dragoman::DRAGOMAN_PROCESSOR
