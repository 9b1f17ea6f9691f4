// Floats to integers, each row by itself.
#include "declared.hpp"
#include "tiles.hpp"
#include "vector.hpp"

namespace dragoman::DRAGOMAN_PROCESSOR {

QuantisedRow quantise(const float* x, std::int64_t count, std::uint8_t* integers) {
  constexpr float kMost = IntegerTile::kMostInput;
  const std::int64_t whole = count / kLanes * kLanes, rest = count - whole;
  Floats least = broadcast(x[0]), most = least;
  const auto look_at = [&](Floats numbers) {
    least = numbers < least ? numbers : least;
    most = max_of(most, numbers);
  };
  for (std::int64_t at = 0; at < whole; at += kLanes) look_at(load(x + at));
  if (rest) look_at(load_some(x + whole, rest, x[0]));
  const float lowest = -reduce_max(-least), range = reduce_max(most) - lowest;
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
