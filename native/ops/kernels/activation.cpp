#include "declared.hpp"
#include "vector.hpp"

namespace dragoman::DRAGOMAN_PROCESSOR {
namespace {

// x · sigmoid(gate)
DRAGOMAN_INLINE Floats times_sigmoid(Floats x, Floats gate) {
  const Floats clamped = max_of(-gate, broadcast(-87.0f));
  return x / (exponential(clamped < broadcast(88.0f) ? clamped : broadcast(88.0f)) + 1.0f);
}

struct Silu {
  static DRAGOMAN_INLINE Floats of(Floats x) { return times_sigmoid(x, x); }
};

struct Relu {
  static DRAGOMAN_INLINE Floats of(Floats x) { return x < 0.0f ? Floats{} : x; }  // what is no number stays none
};

// x · Φ(x), where Φ(−|x|) = erfc(z) / 2 with z = |x| / √2. erfc(z) = t · P(t) · e^(−z²), t = 1 / (1 + z / 2); P was fitted
// to a relative error of 5e-8, so the result has the precision of a float for negative x, too.
struct Gelu {
  static DRAGOMAN_INLINE Floats of(Floats x) {
    const Floats z = max_of(x, -x) * 0.707106781186547524f;
    const Floats t = 1.0f / (z * 0.5f + 1.0f);
    Floats series = broadcast(-2.95345534e-2f);
    series = series * t + 1.42287896e-1f;
    series = series * t + -2.43600892e-1f;
    series = series * t + 1.39034716e-1f;
    series = series * t + -1.33136260e-2f;
    series = series * t + 1.01343763e-1f;
    series = series * t + 1.21551803e-1f;
    series = series * t + 1.41187664e-1f;
    series = series * t + 1.41043208e-1f;
    const Floats tail = series * t * exponential_of_nonpositive(-z * z);
    return x * (x < 0.0f ? tail : 1.0f - tail);
  }
};

// x/2 · (1 + tanh(u)) = x · sigmoid(2u), u = √(2/π) · (x + 0.044715 x³)
struct GeluTanh {
  static DRAGOMAN_INLINE Floats of(Floats x) {
    return times_sigmoid(x, (x * x * 0.044715f + 1.0f) * x * 1.595769121605730711f);
  }
};

struct GeluSigmoid {
  static DRAGOMAN_INLINE Floats of(Floats x) { return times_sigmoid(x, x * 1.702f); }
};

template <class Function>
void activate_all(float* x, std::int64_t count) {
  std::int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) store(x + at, Function::of(load(x + at)));
  if (at < count) store_some(x + at, count - at, Function::of(load_some(x + at, count - at, 0.0f)));
}

}  // namespace

void activate(Activation activation, float* x, std::int64_t count) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kSilu:
      return activate_all<Silu>(x, count);
    case Activation::kRelu:
      return activate_all<Relu>(x, count);
    case Activation::kGelu:
      return activate_all<Gelu>(x, count);
    case Activation::kGeluTanh:
      return activate_all<GeluTanh>(x, count);
    case Activation::kGeluSigmoid:
      return activate_all<GeluSigmoid>(x, count);
  }
}

}  // namespace dragoman::DRAGOMAN_PROCESSOR
