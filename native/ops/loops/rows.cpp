// What is done to each row of numbers by itself.
#include "declared.hpp"
#include "lanes.hpp"

namespace dragoman::DRAGOMAN_PROCESSOR {
namespace {

// A row of logits + bias; without a bias nothing is added.
template <bool kBiased>
struct Logits {
  const float* logits;
  const float* bias;

  DRAGOMAN_INLINE Floats several(std::int64_t at) const {
    return kBiased ? load(logits + at) + load(bias + at) : load(logits + at);
  }
  DRAGOMAN_INLINE float one(std::int64_t at) const { return kBiased ? logits[at] + bias[at] : logits[at]; }
};

constexpr std::int64_t kChunk = 16 * kBlock;  // near enough to be read twice

template <bool kBiased>
DRAGOMAN_INLINE float find_peaks(const Logits<kBiased>& row, std::int64_t begin, std::int64_t end, float* peaks) {
  Floats most = all(-INFINITY);
  std::int64_t block = begin / kBlock, at = begin;
  for (; at + kBlock <= end; at += kBlock, ++block) {
    Floats a = row.several(at), b = row.several(at + kLanes);
    for (std::int64_t next = at + 2 * kLanes; next < at + kBlock; next += 2 * kLanes) {
      a = larger(a, row.several(next));
      b = larger(b, row.several(next + kLanes));
    }
    a = larger(a, b);
    peaks[block] = largest(a);
    most = larger(most, a);
  }
  float peak = largest(most);
  if (at < end) {
    float last = -INFINITY;
    for (; at < end; ++at) last = row.one(at) > last ? row.one(at) : last;
    peaks[block] = last;
    peak = last > peak ? last : peak;
  }
  return peak;
}

template <bool kBiased>
DRAGOMAN_INLINE float add_exponentials(const Logits<kBiased>& row, std::int64_t begin, std::int64_t end, float peak) {
  Floats a{}, b{};
  std::int64_t at = begin;
  for (; at + 2 * kLanes <= end; at += 2 * kLanes) {
    a += decay(row.several(at) - peak);
    b += decay(row.several(at + kLanes) - peak);
  }
  float total = sum(a + b);
  for (; at < end; ++at) total += expf(row.one(at) - peak);
  return total;
}

template <bool kBiased>
DRAGOMAN_INLINE Survey look_over(const Logits<kBiased>& row, std::int64_t count, float* peaks) {
  Survey found{-INFINITY, 0.0f};
  for (std::int64_t begin = 0; begin < count; begin += kChunk) {
    const std::int64_t end = begin + kChunk < count ? begin + kChunk : count;
    const float peak = find_peaks(row, begin, end, peaks);
    if (peak == -INFINITY) continue;
    if (!(peak <= found.peak)) {
      found.sum *= expf(found.peak - peak);
      found.peak = peak;
    }
    found.sum += add_exponentials(row, begin, end, found.peak);
  }
  return found;
}

}  // namespace

Survey survey(const float* logits, const float* bias, std::int64_t count, float* peaks) {
  return bias == nullptr ? look_over(Logits<false>{logits, bias}, count, peaks)
                         : look_over(Logits<true>{logits, bias}, count, peaks);
}

void add_norm(const float* x, const float* update, const float* gamma, const float* beta, float epsilon, std::int64_t width,
              float* to) {
  const std::int64_t whole = width / kLanes * kLanes, rest = width - whole;
  Floats sums{};
  for (std::int64_t at = 0; at < whole; at += kLanes) {
    const Floats added = load(x + at) + load(update + at);
    sums += added;
    store(to + at, added);
  }
  if (rest) {
    const Floats added = load_some(x + whole, rest, 0.0f) + load_some(update + whole, rest, 0.0f);
    sums += added;
    store_some(to + whole, rest, added);
  }
  const float mean = sum(sums) / static_cast<float>(width);
  Floats squares{};
  for (std::int64_t at = 0; at < whole; at += kLanes) {
    const Floats centred = load(to + at) - mean;
    squares += centred * centred;
  }
  if (rest) {
    const Floats centred = load_some(to + whole, rest, mean) - mean;
    squares += centred * centred;
  }
  const float factor = 1.0f / sqrtf(sum(squares) / static_cast<float>(width) + epsilon);
  for (std::int64_t at = 0; at < whole; at += kLanes)
    store(to + at, (load(to + at) - mean) * factor * load(gamma + at) + load(beta + at));
  for (std::int64_t at = whole; at < width; ++at) to[at] = (to[at] - mean) * factor * gamma[at] + beta[at];
}

void silu(const float* x, std::int64_t count, float* to) {
  std::int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) store(to + at, silu_of(load(x + at)));
  if (at < count) store_some(to + at, count - at, silu_of(load_some(x + at, count - at, 0.0f)));
}

Row quantise(const float* x, std::int64_t count, std::uint8_t* integers) {
  constexpr float kMost = 127.0f;
  const std::int64_t whole = count / kLanes * kLanes, rest = count - whole;
  Floats least = all(x[0]), most = least;
  const auto look_at = [&](Floats numbers) {
    least = numbers < least ? numbers : least;
    most = larger(most, numbers);
  };
  for (std::int64_t at = 0; at < whole; at += kLanes) look_at(load(x + at));
  if (rest) look_at(load_some(x + whole, rest, x[0]));
  const float lowest = -largest(-least), range = largest(most) - lowest;
  const float step = range > 0 ? range / kMost : 1.0f, steps = 1.0f / step;
  const auto rounded = [&](Floats numbers) {
    return __builtin_convertvector(__builtin_convertvector((numbers - lowest) * steps + 0.5f, Ints), Bytes);
  };
  for (std::int64_t at = 0; at < whole; at += kLanes) {
    const Bytes bytes = rounded(load(x + at));
    std::memcpy(integers + at, &bytes, sizeof bytes);
  }
  if (rest) {
    const Bytes bytes = rounded(load_some(x + whole, rest, lowest));
    std::memcpy(integers + whole, &bytes, static_cast<std::size_t>(rest));
  }
  return {lowest, step};
}

}  // namespace dragoman::DRAGOMAN_PROCESSOR
