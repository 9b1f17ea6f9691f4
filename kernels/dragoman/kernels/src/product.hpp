// Products with weights in int8: y = x W · scale + b, the rows of x made integers as they come.
#pragma once

#include <cstdint>

namespace dragoman {

// Weights are stored as they are read: tiles of sixteen outputs; in a tile, for every four inputs, the four weights of each
// output side by side. The outputs beyond the last are zeros.
constexpr std::int64_t kTile = 16;
constexpr std::int64_t kQuad = 4;

inline std::int64_t tiles_of(std::int64_t outputs) { return (outputs + kTile - 1) / kTile; }

// Where the four weights of an output begin, for inputs 4 · quad …
inline std::int64_t place_of(std::int64_t output, std::int64_t quad, std::int64_t inputs) {
  return output / kTile * kTile * inputs + quad * kTile * kQuad + output % kTile * kQuad;
}

// A row is lowest + step · integers. They have seven bits, like the weights: the sum of four products fits sixteen. An
// eighth would change what is said less than the weights' own rounding does, and products would take a quarter longer.
struct Row {
  float lowest;
  float step;
};

Row quantise(const float* x, std::int64_t count, std::uint8_t* integers);

struct Weights {
  const std::int8_t* tiles;
  const float* scale;   // (outputs) of each output's weights
  const float* offset;  // (outputs) scale · Σ weights: what an input of one everywhere gives
  const float* bias;    // (outputs) or null
  std::int64_t inputs;  // a multiple of eight
  std::int64_t outputs;
};

enum class Activation : std::int64_t { kNone = 0, kSilu = 1 };

// How many tiles fit the nearest cache together.
inline std::int64_t tiles_at_once(std::int64_t inputs) {
  constexpr std::int64_t kBytes = 1 << 14;
  return inputs * kTile < kBytes ? kBytes / (inputs * kTile) : 1;
}

// The outputs of some tiles, of all rows: `integers` (rows, inputs), `rows_as` (rows), `to` (rows, outputs).
void multiply_tiles(const Weights& weights, std::int64_t begin, std::int64_t end, const std::uint8_t* integers,
                    const Row* rows_as, std::int64_t rows, Activation activation, float* to);

}  // namespace dragoman
