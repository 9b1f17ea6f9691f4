// Forced decoding: many tokens of one target, which is known, at once.
#pragma once

#include <cstring>

#include "../kernels.hpp"
#include "../operator.hpp"
#include "../validate.hpp"
#include "attention.hpp"

namespace dragoman {

// Consecutive tokens of a target see each other's past: packed (tokens, 3 · width), cache (layers, slots, 2 · width),
// positions (tokens), and perhaps a bias (reach + 1, heads), as in StepAttention.
//
// A token's key and value are written to the slot of its position; the slots before the first hold earlier tokens.
struct TargetAttention {
  static constexpr const char* kName = "TargetAttention";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kInt32,
                                            ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat};
  static constexpr std::size_t kRequired = 3;
  Heads heads;
  std::int64_t layer;

  explicit TargetAttention(const Attributes& attributes)
      : heads(heads_of(attributes)), layer(attributes.integer("layer", 0, kLargestSize)) {}

  static void infer(const Shapes& shapes) { shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), width_of(shapes)}); }

  void compute(const Context& context) const {
    const Tensor packed = context.input(0, 2), positions = context.input(2, 1);
    const RelativeBias bias = bias_of(context.optional_input(3, 2), heads.count, false);
    const std::int64_t width = heads.width(), tokens = packed.sizes[0];
    const CacheLayer past(context.input(1, 3), layer, width);
    require(packed.sizes[1] == 3 * width, "queries, keys and values must be (tokens, 3 · heads · head_dim)");
    require(positions.sizes[0] == tokens, "there must be as many positions as tokens");
    const auto* position_of = positions.as<std::int32_t>();
    for (std::int64_t token = 0; token < tokens; ++token) {
      require(position_of[token] == position_of[0] + token, "the tokens' positions must follow each other");
      std::memcpy(past.slot(position_of[token]), packed.as<float>() + (3 * token + 1) * width,
                  static_cast<std::size_t>(2 * width) * sizeof(float));
    }
    auto* output = context.output<float>(0, tokens, width);
    const std::int64_t seen = tokens == 0 ? 0 : tokens * (position_of[0] + (tokens + 1) / 2);
    context.each(tokens, seen * width / kFloatsPerNanosecond, [&](std::int64_t token) {
      const std::int64_t position = position_of[token];
      scratch.make_room(heads, position + 1);
      for (std::int64_t slot = 0; slot <= position; ++slot) scratch.keys[slot] = past.slot(slot);
      kernels().attend({heads, packed.as<float>() + 3 * token * width, width, 1, position, scratch.keys.data(), position + 1,
                        width, bias, scratch.scores.data(), output + token * width, width});
    });
  }
};

// Tokens of a target see its source: query (tokens, width), memory (source, 2 · width), which holds the key and the value of
// each source token, and perhaps the weights of the heads (heads) in the second output.
//
// The second output (tokens, source) is Σ over heads of weight · softmax(q Kᵀ · scale): how much a token looks at each
// source token. It exists where the weights of the heads do.
struct AlignedAttention {
  static constexpr const char* kName = "AlignedAttention";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat, ElementType::kFloat};
  static constexpr std::size_t kRequired = 2, kRequiredOutputs = 1;
  Heads heads;

  explicit AlignedAttention(const Attributes& attributes) : heads(heads_of(attributes)) {}

  static void infer(const Shapes& shapes) {
    shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), width_of(shapes)});
    shapes.set(1, ElementType::kFloat, {shapes.size_of(0, 0), shapes.size_of(1, 0)});
  }

  void compute(const Context& context) const {
    const Tensor query = context.input(0, 2), memory = context.input(1, 2), head_weights = context.optional_input(2, 1);
    const std::int64_t width = heads.width(), tokens = query.sizes[0], source = memory.sizes[0];
    require(query.sizes[1] == width, "queries must be (tokens, heads · head_dim)");
    require(source > 0 && memory.sizes[1] == 2 * width, "the source must have tokens, with a key and a value each");
    require(head_weights.data == nullptr || head_weights.sizes[0] == heads.count, "there must be a weight for each head");
    auto* output = context.output<float>(0, tokens, width);
    float* alignment = nullptr;
    if (head_weights.data != nullptr) alignment = context.output<float>(1, tokens, source);
    context.each(tokens, tokens * source * width / kFloatsPerNanosecond, [&](std::int64_t token) {
      scratch.make_room(heads, source);
      for (std::int64_t at = 0; at < source; ++at) scratch.keys[at] = memory.as<float>() + at * 2 * width;
      kernels().attend({heads, query.as<float>() + token * width, width, 1, 0, scratch.keys.data(), source, width,
                        RelativeBias{nullptr, 0, 0}, scratch.scores.data(), output + token * width, width});
      if (alignment != nullptr) add_heads(head_weights.as<float>(), source, alignment + token * source);
    });
  }

 private:
  // What `attend` leaves: powers of e (keys, padded heads), and behind them the inverse of their sums.
  void add_heads(const float* weights, std::int64_t source, float* alignment) const {
    const std::int64_t stride = round_up(heads.count, kEight);
    const float* inverse = scratch.scores.data() + source * stride;
    for (std::int64_t at = 0; at < source; ++at) {
      float sum = 0;
      for (std::int64_t head = 0; head < heads.count; ++head)
        if (weights[head] != 0)
          sum += weights[head] * scratch.scores[static_cast<std::size_t>(at * stride + head)] * inverse[head];
      alignment[at] = sum;
    }
  }
};

}  // namespace dragoman
