// The loops over numbers, which are compiled for several processors; `loops()` are those of this one.
#pragma once

#include <cstdint>

namespace dragoman {

// Numbers that are computed at once on every processor, or a part of what is: sizes of rows and heads are multiples of it.
constexpr std::int64_t kEight = 8;

// Attention.

struct Heads {
  std::int64_t count;
  std::int64_t size;  // a multiple of eight
  float scale;

  std::int64_t width() const { return count * size; }
};

// softmax(q Kᵀ · scale) V of all heads, for queries (queries, heads · size) that see the same tokens. From one query to the
// next, and from one answer to the next, it is `query_stride` and `answer_stride` numbers. Token t has its key at tokens[t]
// and its value `value_offset` numbers further on.
struct Attention {
  Heads heads;
  const float* query;
  std::int64_t query_stride;
  std::int64_t queries;
  const float* const* tokens;
  std::int64_t seen;
  std::int64_t value_offset;
  float* scores;  // room for `room_for_scores` numbers
  float* answer;
  std::int64_t answer_stride;
};

inline std::int64_t room_for_scores(const Heads& heads, std::int64_t seen) {
  return (seen + 1) * ((heads.count + kEight - 1) / kEight * kEight);
}

// Products.

// Weights are stored as they are read: tiles of sixteen outputs. In a tile of floats lie, for every input, its weights for
// each output side by side; in a tile of integers, for every four inputs, the four weights of each output side by side.
// The outputs beyond the last are zeros.
constexpr std::int64_t kTile = 16;
constexpr std::int64_t kQuad = 4;

constexpr std::int64_t kTilesAtOnce = 4;

inline std::int64_t tiles_of(std::int64_t outputs) { return (outputs + kTile - 1) / kTile; }

enum class Activation : std::int64_t { kNone = 0, kSilu = 1 };

// A row is lowest + step · integers. They have seven bits, like the weights: the sum of four products fits sixteen. An
// eighth would change what is said less than the weights' own rounding does, and products would take a quarter longer.
struct Row {
  float lowest;
  float step;
};

// What becomes of the sums of a product: act(sums · scale · step + lowest · offset + bias) where they are integers,
// act(sums + bias) where they are floats.
struct Finish {
  const float* scale;   // (outputs) of each output's weights
  const float* offset;  // (outputs) scale · Σ weights: what an input of one everywhere gives
  const float* bias;    // (outputs) or null
  const Row* rows;      // (rows)
  Activation activation;
};

// x (rows, inputs) times weights in tiles -> to (rows, outputs).
template <class Input, class Weight>
struct Product {
  const Input* x;
  std::int64_t rows, inputs, outputs;
  const Weight* tiles;
  Finish finish;
  float* to;
};

using FloatProduct = Product<float, float>;
using IntegerProduct = Product<std::uint8_t, std::int8_t>;

// Logits.

constexpr std::int64_t kBlock = 64;

struct Survey {
  float peak;
  float sum;  // Σ e^(logit − peak)
};

struct Loops {
  void (*attend)(const Attention&);

  // A part of a product: tiles `begin` to `end` of all rows. Parts of kTilesAtOnce make the best use of what is read.
  void (*multiply_floats)(const FloatProduct&, std::int64_t begin, std::int64_t end);
  void (*multiply_integers)(const IntegerProduct&, std::int64_t begin, std::int64_t end);
  Row (*quantise)(const float* x, std::int64_t count, std::uint8_t* integers);

  // to = γ · (x + update − mean) / sqrt(variance + ε) + β
  void (*add_norm)(const float* x, const float* update, const float* gamma, const float* beta, float epsilon,
                   std::int64_t width, float* to);
  // to = x · sigmoid(x)
  void (*silu)(const float* x, std::int64_t count, float* to);

  // Of logits + bias, which may be null; the largest of each block of 64 goes to `peaks`.
  Survey (*survey)(const float* logits, const float* bias, std::int64_t count, float* peaks);

  const char* processor;
};

// Of the best processor that this one can pass for, or of a lesser one that $DRAGOMAN_PROCESSOR names (`processor`).
const Loops& loops();

}  // namespace dragoman
