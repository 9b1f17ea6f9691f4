// Eight numbers at a time. Compilers make of it whatever the processor has; every loop is compiled for several of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define DRAGOMAN_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define DRAGOMAN_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define DRAGOMAN_EACH_PROCESSOR
#endif
#define DRAGOMAN_INLINE inline __attribute__((always_inline))

namespace dragoman {

constexpr std::int64_t kLanes = 8;

typedef float Floats __attribute__((vector_size(32)));
typedef std::int32_t Ints __attribute__((vector_size(32)));
typedef std::uint8_t Bytes __attribute__((vector_size(8)));

DRAGOMAN_INLINE Floats load(const float* from) {
  Floats numbers;
  std::memcpy(&numbers, from, sizeof numbers);
  return numbers;
}

DRAGOMAN_INLINE void store(float* to, Floats numbers) { std::memcpy(to, &numbers, sizeof numbers); }

DRAGOMAN_INLINE Floats all(float number) { return Floats{} + number; }

DRAGOMAN_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

DRAGOMAN_INLINE float sum(Floats x) {
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

DRAGOMAN_INLINE float largest(Floats x) {
  float most = x[0];
  for (int lane = 1; lane < kLanes; ++lane) most = x[lane] > most ? x[lane] : most;
  return most;
}

// e^x to two units in the last place. 2^n · e^r with x = n · ln 2 + r, |r| ≤ ln 2 / 2; below −87 it is 0.
DRAGOMAN_INLINE Floats exponential(Floats x) {
  constexpr float kLowest = -87.0f, kHighest = 88.0f;
  constexpr float kRounder = 12582912.0f;  // 1.5 · 2^23: adding it rounds to a whole number
  const Floats clamped = x < kLowest ? all(kLowest) : (x > kHighest ? all(kHighest) : x);
  const Floats shifted = clamped * 1.44269504088896341f + kRounder;
  const Floats whole = shifted - kRounder;
  Floats rest = clamped - whole * 0.693359375f;
  rest = rest - whole * -2.12194440e-4f;
  Floats series = all(1.9875691500e-4f);
  series = series * rest + 1.3981999507e-3f;
  series = series * rest + 8.3334519073e-3f;
  series = series * rest + 4.1665795894e-2f;
  series = series * rest + 1.6666665459e-1f;
  series = series * rest + 5.0000001201e-1f;
  series = series * rest * rest + rest + 1.0f;
  Ints exponent;
  std::memcpy(&exponent, &shifted, sizeof exponent);
  exponent = (exponent + 127) << 23;  // the whole number lies in the low bits of `shifted`
  Floats power;
  std::memcpy(&power, &exponent, sizeof power);
  return x < kLowest ? Floats{} : series * power;
}

}  // namespace dragoman
