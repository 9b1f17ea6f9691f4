#include "product.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "simd.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dragoman {
namespace {

// What belongs to the outputs of one tile: sixteen numbers each, though the last tile may have fewer outputs.
struct Tile {
  const std::int8_t* weights;
  const float *scale, *offset, *bias;
  std::int64_t inputs;
  std::int64_t outputs;  // of all tiles: from one row of results to the next
  std::int64_t count;    // of this one
  Activation activation;
};

// Eight sums as numbers: scale · (step · sum) + lowest · offset + bias.
DRAGOMAN_INLINE void finish(const Tile& tile, std::int64_t first, const Row& row, Ints sums, float* to) {
  Floats y = __builtin_convertvector(sums, Floats) * (load(tile.scale + first) * row.step);
  y += load(tile.offset + first) * row.lowest + load(tile.bias + first);
  if (tile.activation == Activation::kSilu) y = y / (exponential(-y) + 1.0f);
  if (first + kLanes <= tile.count) return store(to + first, y);
  for (std::int64_t at = first; at < tile.count; ++at) to[at] = y[at - first];
}

// The sixteen sums of each of some rows.
template <int kRows>
using Sums = std::int32_t[kRows][kTile];

template <int kRows>
void sum_plainly(const Tile& tile, const std::uint8_t* integers, Sums<kRows>& sums) {
  std::memset(sums, 0, sizeof sums);
  for (int row = 0; row < kRows; ++row)
    for (std::int64_t input = 0; input < tile.inputs; ++input)
      for (int output = 0; output < kTile; ++output)
        sums[row][output] += integers[row * tile.inputs + input] *
                             tile.weights[(input / kQuad * kTile + output) * kQuad + input % kQuad];
}

// The sums of some rows as numbers. A function of its own: inlined, it would take registers from the sums.
DRAGOMAN_EACH_PROCESSOR
void finish_rows(const Tile& tile, const Row* rows_as, const std::int32_t* sums, int rows, float* to) {
  for (int row = 0; row < rows; ++row, sums += kTile, to += tile.outputs)
    for (std::int64_t first = 0; first < kTile; first += kLanes) {
      Ints eight;
      std::memcpy(&eight, sums + first, sizeof eight);
      finish(tile, first, rows_as[row], eight, to);
    }
}

#if defined(__x86_64__)

DRAGOMAN_INLINE std::int32_t four(const std::uint8_t* integers) {
  std::int32_t together;
  std::memcpy(&together, integers, sizeof together);
  return together;
}

// Two products of four are added in sixteen bits before they are widened: three multiplications where there were four.
template <int kRows>
__attribute__((target("avx2"), noinline)) void sum_avx2(const Tile& tile, const std::uint8_t* integers, Sums<kRows>& sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  const std::int64_t inputs = tile.inputs;
  const auto* weights = reinterpret_cast<const __m256i*>(tile.weights);
  __m256i low[kRows], high[kRows];
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) low[row] = high[row] = _mm256_setzero_si256();
  for (std::int64_t input = 0; input < inputs; input += 2 * kQuad, weights += 4) {
    const __m256i low_1 = _mm256_loadu_si256(weights), high_1 = _mm256_loadu_si256(weights + 1);
    const __m256i low_2 = _mm256_loadu_si256(weights + 2), high_2 = _mm256_loadu_si256(weights + 3);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const __m256i first = _mm256_set1_epi32(four(integers + row * inputs + input));
      const __m256i second = _mm256_set1_epi32(four(integers + row * inputs + input + kQuad));
      const __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(first, low_1), _mm256_maddubs_epi16(second, low_2));
      const __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(first, high_1), _mm256_maddubs_epi16(second, high_2));
      low[row] = _mm256_add_epi32(low[row], _mm256_madd_epi16(a, ones));
      high[row] = _mm256_add_epi32(high[row], _mm256_madd_epi16(b, ones));
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[row]), low[row]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[row] + kLanes), high[row]);
  }
}

// The same in one instruction for each four products, on processors that have it.
template <int kRows>
__attribute__((target("avx512vnni,avx512vl"), noinline)) void sum_vnni(const Tile& tile, const std::uint8_t* integers,
                                                                       Sums<kRows>& sums) {
  const std::int64_t inputs = tile.inputs;
  const auto* weights = reinterpret_cast<const __m256i*>(tile.weights);
  __m256i low[kRows], high[kRows];
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) low[row] = high[row] = _mm256_setzero_si256();
  for (std::int64_t input = 0; input < inputs; input += kQuad, weights += 2) {
    const __m256i first = _mm256_loadu_si256(weights), second = _mm256_loadu_si256(weights + 1);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const __m256i same = _mm256_set1_epi32(four(integers + row * inputs + input));
      low[row] = _mm256_dpbusd_epi32(low[row], same, first);
      high[row] = _mm256_dpbusd_epi32(high[row], same, second);
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[row]), low[row]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[row] + kLanes), high[row]);
  }
}

enum class Processor { kPlain, kAvx2, kVnni };

Processor processor() {
  static const Processor found = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl")) return Processor::kVnni;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? Processor::kAvx2 : Processor::kPlain;
  }();
  return found;
}

#endif

template <int kRows>
void sum_up(const Tile& tile, const std::uint8_t* integers, Sums<kRows>& sums) {
#if defined(__x86_64__)
  switch (processor()) {
    case Processor::kVnni:
      return sum_vnni<kRows>(tile, integers, sums);
    case Processor::kAvx2:
      return sum_avx2<kRows>(tile, integers, sums);
    case Processor::kPlain:
      break;
  }
#endif
  sum_plainly<kRows>(tile, integers, sums);
}

template <int kRows>
void multiply(const Tile& tile, const std::uint8_t* integers, const Row* rows_as, float* to) {
  alignas(32) Sums<kRows> sums;
  sum_up<kRows>(tile, integers, sums);
  finish_rows(tile, rows_as, &sums[0][0], kRows, to);
}

}  // namespace

DRAGOMAN_EACH_PROCESSOR
Row quantise(const float* x, std::int64_t count, std::uint8_t* integers) {
  constexpr float kMost = 127.0f;
  Floats least = load(x), most = least;
  for (std::int64_t at = kLanes; at < count; at += kLanes) {
    const Floats numbers = load(x + at);
    least = numbers < least ? numbers : least;
    most = larger(most, numbers);
  }
  const float lowest = -largest(-least), range = largest(most) - lowest;
  const float step = range > 0 ? range / kMost : 1.0f, steps = 1.0f / step;
  for (std::int64_t at = 0; at < count; at += kLanes) {
    const Ints rounded = __builtin_convertvector((load(x + at) - lowest) * steps + 0.5f, Ints);
    const Bytes bytes = __builtin_convertvector(rounded, Bytes);
    std::memcpy(integers + at, &bytes, sizeof bytes);
  }
  return {lowest, step};
}

void multiply_tiles(const Weights& weights, std::int64_t begin, std::int64_t end, const std::uint8_t* integers,
                    const Row* rows_as, std::int64_t rows, Activation activation, float* to) {
  static constexpr float kZeros[kTile] = {};
  const std::int64_t inputs = weights.inputs, outputs = weights.outputs;
  float padded[3][kTile] = {};
  const auto tile_of = [&](std::int64_t number) {
    const std::int64_t first = number * kTile, count = std::min(kTile, outputs - first);
    const float* bias = weights.bias == nullptr ? kZeros : weights.bias + first;
    Tile tile{weights.tiles + first * inputs, weights.scale + first, weights.offset + first, bias,
              inputs, outputs, count, activation};
    if (count < kTile) {
      tile.scale = std::copy_n(tile.scale, count, padded[0]) - count;
      tile.offset = std::copy_n(tile.offset, count, padded[1]) - count;
      tile.bias = std::copy_n(tile.bias, count, padded[2]) - count;
    }
    return tile;
  };
  // Some rows through all of these tiles, then the next rows: results are written in longer pieces, and the tiles stay
  // in the nearest cache.
  const auto some_rows = [&](auto some, std::int64_t row) {
    for (std::int64_t number = begin; number < end; ++number)
      multiply<decltype(some)::value>(tile_of(number), integers + row * inputs, rows_as + row,
                                      to + row * outputs + number * kTile);
  };
  std::int64_t row = 0;
  for (; rows - row >= 4; row += 4) some_rows(std::integral_constant<int, 4>{}, row);
  for (; rows - row >= 2; row += 2) some_rows(std::integral_constant<int, 2>{}, row);
  for (; rows - row >= 1; row += 1) some_rows(std::integral_constant<int, 1>{}, row);
}

}  // namespace dragoman
