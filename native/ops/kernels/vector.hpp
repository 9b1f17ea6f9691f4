// SIMD vectors of the instruction set that this is compiled for.
//
// Everything in kernels/ is compiled once for each instruction set, each time in another namespace (DRAGOMAN_PROCESSOR).
// Nothing of the C++ library may be instantiated here: the linker would keep one instruction set's copy for all of them.
#pragma once

#include <math.h>

#include <cstdint>
#include <cstring>

#define DRAGOMAN_INLINE inline __attribute__((always_inline))
#define DRAGOMAN_INLINED __attribute__((always_inline))  // of a lambda

namespace dragoman::DRAGOMAN_PROCESSOR {

template <int kValue>
struct Number {
  DRAGOMAN_INLINE constexpr operator int() const { return kValue; }
};

// body(0) … body(kCount - 1), each with a number that the compiler knows: arrays that only such numbers index are kept in
// registers, which loops that are unrolled later are not sure of.
template <int kCount, int kFirst = 0, class Body>
DRAGOMAN_INLINE void repeat(const Body& body) {
  if constexpr (kFirst < kCount) {
    body(Number<kFirst>{});
    repeat<kCount, kFirst + 1>(body);
  }
}

typedef float Eight __attribute__((vector_size(8 * sizeof(float))));
typedef float Sixteen __attribute__((vector_size(16 * sizeof(float))));

#if defined(__AVX512F__)
typedef Sixteen Floats;
#else
typedef Eight Floats;
#endif

template <class Vector>
constexpr std::int64_t lanes_of = sizeof(Vector) / sizeof(float);
constexpr std::int64_t kLanes = lanes_of<Floats>;

typedef std::int32_t Ints __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));

template <class Vector = Floats>
DRAGOMAN_INLINE Vector load(const float* from) {
  Vector numbers;
  std::memcpy(&numbers, from, sizeof numbers);
  return numbers;
}

template <class Vector>
DRAGOMAN_INLINE void store(float* to, Vector numbers) {
  std::memcpy(to, &numbers, sizeof numbers);
}

template <class Vector = Floats>
DRAGOMAN_INLINE Vector broadcast(float number) {
  return number - Vector{};
}

// The first `count` numbers, and `beyond` in the other lanes.
DRAGOMAN_INLINE Floats load_some(const float* from, std::int64_t count, float beyond) {
  Floats numbers = broadcast(beyond);
  for (std::int64_t lane = 0; lane < count; ++lane) numbers[lane] = from[lane];
  return numbers;
}

DRAGOMAN_INLINE void store_some(float* to, std::int64_t count, Floats numbers) {
  for (std::int64_t lane = 0; lane < count; ++lane) to[lane] = numbers[lane];
}

template <class Vector>
DRAGOMAN_INLINE Vector max_of(Vector a, Vector b) {
  return a > b ? a : b;
}

DRAGOMAN_INLINE Eight low_half(Sixteen x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7); }
DRAGOMAN_INLINE Eight high_half(Sixteen x) { return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15); }

DRAGOMAN_INLINE float reduce_sum(Eight x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }
DRAGOMAN_INLINE float reduce_sum(Sixteen x) { return reduce_sum(low_half(x) + high_half(x)); }

DRAGOMAN_INLINE float reduce_max(Eight x) {
  const auto most = [](float a, float b) { return a > b ? a : b; };
  return most(most(most(x[0], x[4]), most(x[2], x[6])), most(most(x[1], x[5]), most(x[3], x[7])));
}
DRAGOMAN_INLINE float reduce_max(Sixteen x) { return reduce_max(max_of(low_half(x), high_half(x))); }

// In each four lanes: the sums of neighbours in a, then those in b.
DRAGOMAN_INLINE Eight pairwise_sums(Eight a, Eight b) {
  return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}
DRAGOMAN_INLINE Sixteen pairwise_sums(Sixteen a, Sixteen b) {
  return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}

DRAGOMAN_INLINE Eight fold(Eight x) { return x; }
DRAGOMAN_INLINE Eight fold(Sixteen x) { return low_half(x) + high_half(x); }

// The sum of each of eight vectors: together they take a third of what they would take one by one.
template <class Vector>
DRAGOMAN_INLINE Eight reduce_sums(const Vector (&x)[8]) {
  const Eight a = fold(pairwise_sums(pairwise_sums(x[0], x[1]), pairwise_sums(x[2], x[3])));
  const Eight b = fold(pairwise_sums(pairwise_sums(x[4], x[5]), pairwise_sums(x[6], x[7])));
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}

// e^x to two units in the last place, for −87 ≤ x ≤ 88: 2^n · e^r with x = n · ln 2 + r, |r| ≤ ln 2 / 2.
template <class Vector>
DRAGOMAN_INLINE Vector exponential(Vector x) {
  typedef std::int32_t Exponents __attribute__((vector_size(sizeof(Vector))));
  constexpr float kRounder = 12582912.0f;  // 1.5 · 2^23: adding it rounds to a whole number
  const Vector shifted = x * 1.44269504088896341f + kRounder;
  const Vector whole = shifted - kRounder;
  Vector rest = x - whole * 0.693359375f;
  rest = rest - whole * -2.12194440e-4f;
  Vector series = broadcast<Vector>(1.9875691500e-4f);
  series = series * rest + 1.3981999507e-3f;
  series = series * rest + 8.3334519073e-3f;
  series = series * rest + 4.1665795894e-2f;
  series = series * rest + 1.6666665459e-1f;
  series = series * rest + 5.0000001201e-1f;
  series = series * rest * rest + rest + 1.0f;
  Exponents exponent;
  std::memcpy(&exponent, &shifted, sizeof exponent);
  exponent = (exponent + 127) << 23;  // the whole number lies in the low bits of `shifted`
  Vector power;
  std::memcpy(&power, &exponent, sizeof power);
  return series * power;
}

// e^x for x ≤ 0, where what is below e^−87 counts for nothing.
template <class Vector>
DRAGOMAN_INLINE Vector exponential_of_nonpositive(Vector x) {
  return exponential(max_of(x, broadcast<Vector>(-87.0f)));
}

}  // namespace dragoman::DRAGOMAN_PROCESSOR
