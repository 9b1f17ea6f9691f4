// The inner loops, compiled once for each instruction set; `kernels()` are those for this processor.
#pragma once

#include <cstdint>

namespace dragoman {

// Vector kernels take this many floats at once, or a multiple of it.
constexpr std::int64_t kEight = 8;

constexpr std::int64_t round_up(std::int64_t count, std::int64_t to) { return (count + to - 1) / to * to; }

// Attention.

struct Heads {
  std::int64_t count;
  std::int64_t size;
  float scale;

  std::int64_t width() const { return count * size; }
};

// What is added to the score of a key at position k for a query at position q: values[clamp(zero + k − q, 0, rows − 1)], a
// row of one number for each head. Without values nothing is added.
struct RelativeBias {
  const float* values;  // (rows, heads) or null
  std::int64_t rows;
  std::int64_t zero;
};

// softmax(q Kᵀ · scale + bias) V of all heads, for queries (queries, heads · size) that see the same keys. From one query to
// the next, and from one result to the next, it is `query_stride` and `output_stride` floats. Key t is at keys[t], and its
// value `value_offset` floats further on. Query i is at position query_position + i, key t at position t.
struct Attention {
  Heads heads;
  const float* query;
  std::int64_t query_stride;
  std::int64_t queries;
  std::int64_t query_position;
  const float* const* keys;
  std::int64_t key_count;
  std::int64_t value_offset;
  RelativeBias bias;
  float* scores;  // room for `score_count` floats
  float* output;
  std::int64_t output_stride;
};

inline std::int64_t score_count(const Heads& heads, std::int64_t key_count) {
  return (key_count + 1) * round_up(heads.count, kEight);
}

// Matrix products.

// Weights are stored in the order in which they are read: tiles of sixteen outputs. A tile of floats holds, for every input,
// its weights for the sixteen outputs; a tile of int8, for every four inputs, the four weights of each output. Outputs
// beyond the last are zeros; in int8 so are inputs up to a multiple of eight.
constexpr std::int64_t kTile = 16;
constexpr std::int64_t kQuad = 4;

constexpr std::int64_t kTilesAtOnce = 4;

inline std::int64_t tiles_of(std::int64_t outputs) { return (outputs + kTile - 1) / kTile; }

enum class Activation : std::int64_t {
  kNone = 0,
  kSilu = 1,         // x · sigmoid(x)
  kRelu = 2,         // max(x, 0)
  kGelu = 3,         // x · Φ(x)
  kGeluTanh = 4,     // x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))
  kGeluSigmoid = 5,  // x · sigmoid(1.702 x)
};
constexpr Activation kLastActivation = Activation::kGeluSigmoid;

// A row of floats as lowest + step · integers. They have eight bits, or as many as the processor multiplies without
// saturating (`kMostInput`).
struct QuantisedRow {
  float lowest;
  float step;
};

// What a product's sums become: y = sums · scale · step + lowest · offset for integers, y = sums · factor for floats; then
// act(y + bias), and where the product is gated, times what `output` held before.
struct Epilogue {
  const float* scale;        // (outputs) of each output's weights
  const float* offset;       // (outputs) scale · Σ weights: the output for an input of ones
  const QuantisedRow* rows;  // (rows)
  float factor;
  const float* bias;  // (outputs) or null
  Activation activation;
  bool gated;
};

// x (rows, inputs) times tiles of weights -> output (rows, outputs).
template <class Input, class Weight>
struct MatMul {
  const Input* x;
  std::int64_t rows, inputs, outputs;
  const Weight* tiles;
  Epilogue epilogue;
  float* output;
};

using FloatMatMul = MatMul<float, float>;
using IntegerMatMul = MatMul<std::uint8_t, std::int8_t>;

// Norms.

struct NormWeights {
  const float* gamma;  // (width)
  const float* beta;   // (width) or null
  float epsilon;
  bool rms;  // RMSNorm: the mean is not subtracted
};

// Logits.

constexpr std::int64_t kBlock = 64;
constexpr std::int64_t kLogitsTogether = 16 * kBlock;  // read twice from the nearest cache

// log Σ e^x = max + log(sum)
struct LogSumExp {
  float max;
  float sum;  // Σ e^(x − max)
};

struct Kernels {
  void (*attend)(const Attention&);

  // Tiles `begin` to `end` of a product, for all rows; kTilesAtOnce of them, or a multiple, reuse what is read best.
  void (*multiply_floats)(const FloatMatMul&, std::int64_t begin, std::int64_t end);
  void (*multiply_integers)(const IntegerMatMul&, std::int64_t begin, std::int64_t end);
  QuantisedRow (*quantise)(const float* x, std::int64_t count, std::uint8_t* integers);

  // output = γ · (s − mean) / sqrt(variance + ε) + β, or γ · s / sqrt(mean of squares + ε) + β, where s = x + update is
  // written to `sum`. Without `update` s = x, and `sum` is not used. `sum` may be x, and it may be `output`.
  void (*norm)(const float* x, const float* update, const NormWeights& weights, std::int64_t width, float* sum,
               float* output);

  // Of logits + bias, which may be null, and of those `before`; the largest of every 64 go to `block_maxima`. A row may be
  // given in several calls: the result is the same where each but the last has a multiple of kLogitsTogether.
  LogSumExp (*log_sum_exp)(LogSumExp before, const float* logits, const float* bias, std::int64_t count,
                           float* block_maxima);

  const char* processor;
};

// For the best instruction set of this processor, or for a lower one that $DRAGOMAN_PROCESSOR names (`processor`).
const Kernels& kernels();

}  // namespace dragoman
