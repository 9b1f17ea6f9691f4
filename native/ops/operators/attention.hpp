// Attention of every kind: over a source's own tokens, over a row's past, and over the source from the decoder.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "../loops.hpp"
#include "../runtime.hpp"
#include "require.hpp"

namespace dragoman {

constexpr std::int64_t kNumbersANanosecond = 8;  // of keys, with their values, that one thread gets through

inline Heads heads_of(const Attributes& attributes) {
  const Heads heads{attributes.integer("heads"), attributes.integer("head_dim"), attributes.real("scale")};
  require(heads.count > 0 && heads.size > 0 && heads.size % kEight == 0, "head_dim must be a multiple of eight");
  return heads;
}

// Where attention keeps what it needs for a query.
struct Scratch {
  std::vector<const float*> tokens;
  std::vector<float> scores;

  void make_room(const Heads& heads, std::int64_t seen) {
    const auto cells = static_cast<std::size_t>(seen), numbers = static_cast<std::size_t>(room_for_scores(heads, seen));
    if (tokens.size() < cells) tokens.resize(cells);
    if (scores.size() < numbers) scores.resize(numbers);
  }
};

inline thread_local Scratch scratch;

// One layer of a cache (layers, cells, 2 · width): a cell holds the key of a token and then its value.
struct Layer {
  float* first;
  std::int64_t cells;
  std::int64_t cell_size;

  Layer(const Tensor& cache, std::int64_t layer, std::int64_t width)
      : first(cache.as<float>() + layer * cache.sizes[1] * cache.sizes[2]), cells(cache.sizes[1]), cell_size(cache.sizes[2]) {
    require(layer < cache.sizes[0] && cell_size == 2 * width, "the cache has other sizes than the model");
  }

  float* cell(std::int64_t number) const {
    require(number >= 0 && number < cells, "a row names a cell that the cache does not have");
    return first + number * cell_size;
  }
};

// Every token of a source sees all of it: packed (tokens, 3 · width), starts and lengths (sources).
struct SourceAttention {
  static constexpr const char* kName = "SourceAttention";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kInt32, Type::kInt32};
  static constexpr Type kOutputs[] = {Type::kFloat};
  Heads heads;

  explicit SourceAttention(const Attributes& attributes) : heads(heads_of(attributes)) {}

  void compute(const Context& context) const {
    const Tensor packed = context.input(0, 2), starts = context.input(1, 1), lengths = context.input(2, 1);
    const std::int64_t width = heads.width(), tokens = packed.sizes[0];
    require(packed.sizes[1] == 3 * width && starts.sizes[0] == lengths.sizes[0], "inputs do not fit together");
    float* seen = context.output<float>(0, tokens, width);
    const std::int64_t sources = starts.sizes[0];
    context.each(sources, tokens * tokens / std::max(sources, std::int64_t{1}) * width / kNumbersANanosecond, [&](std::int64_t source) {
      const std::int64_t start = starts.as<std::int32_t>()[source], length = lengths.as<std::int32_t>()[source];
      require(start >= 0 && length > 0 && start + length <= tokens, "a source lies outside of the tokens");
      const float* first = packed.as<float>() + start * 3 * width;
      scratch.make_room(heads, length);
      for (std::int64_t token = 0; token < length; ++token) scratch.tokens[token] = first + token * 3 * width + width;
      loops().attend({heads, first, 3 * width, length, scratch.tokens.data(), length, width, scratch.scores.data(),
                      seen + start * width, width});
    });
  }
};

// A new token a row joins its past and sees it: packed (rows, 3 · width), cache (layers, cells, 2 · width),
// cells (rows, room), positions (rows). The token's key and value are written to the cell at the row's position.
struct StepAttention {
  static constexpr const char* kName = "StepAttention";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kFloat, Type::kInt32, Type::kInt32};
  static constexpr Type kOutputs[] = {Type::kFloat};
  Heads heads;
  std::int64_t layer;

  explicit StepAttention(const Attributes& attributes) : heads(heads_of(attributes)), layer(attributes.integer("layer")) {}

  void compute(const Context& context) const {
    const Tensor packed = context.input(0, 2), cells = context.input(2, 2), positions = context.input(3, 1);
    const std::int64_t width = heads.width(), rows = packed.sizes[0], room = cells.sizes[1];
    const Layer cache(context.input(1, 3), layer, width);
    require(packed.sizes[1] == 3 * width && cells.sizes[0] == rows && positions.sizes[0] == rows, "inputs do not fit together");
    float* seen = context.output<float>(0, rows, width);
    const auto* first = positions.as<std::int32_t>();
    const std::int64_t seen_together = std::accumulate(first, first + rows, rows);
    context.each(rows, seen_together * width / kNumbersANanosecond, [&](std::int64_t row) {
      const std::int64_t position = first[row];
      require(position >= 0 && position < room, "a row stands beyond its cells");
      const float* query = packed.as<float>() + row * 3 * width;
      const std::int32_t* own = cells.as<std::int32_t>() + row * room;
      std::memcpy(cache.cell(own[position]), query + width, static_cast<std::size_t>(2 * width) * sizeof(float));
      scratch.make_room(heads, position + 1);
      for (std::int64_t token = 0; token <= position; ++token) scratch.tokens[token] = cache.cell(own[token]);
      loops().attend({heads, query, width, 1, scratch.tokens.data(), position + 1, width, scratch.scores.data(),
                      seen + row * width, width});
    });
  }
};

// Rows see their group's source: query (rows, width), cache (layers, cells, 2 · width), starts and lengths (groups).
struct CrossAttention {
  static constexpr const char* kName = "CrossAttention";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kFloat, Type::kInt32, Type::kInt32};
  static constexpr Type kOutputs[] = {Type::kFloat};
  Heads heads;
  std::int64_t layer;

  explicit CrossAttention(const Attributes& attributes) : heads(heads_of(attributes)), layer(attributes.integer("layer")) {}

  void compute(const Context& context) const {
    const Tensor query = context.input(0, 2), starts = context.input(2, 1), lengths = context.input(3, 1);
    const std::int64_t width = heads.width(), rows = query.sizes[0], groups = starts.sizes[0];
    const Layer cache(context.input(1, 3), layer, width);
    require(query.sizes[1] == width && groups > 0 && rows % groups == 0 && lengths.sizes[0] == groups,
            "inputs do not fit together");
    const std::int64_t beams = rows / groups;
    float* seen = context.output<float>(0, rows, width);
    const auto* first = lengths.as<std::int32_t>();
    const std::int64_t source_tokens = std::accumulate(first, first + groups, std::int64_t{0});
    context.each(groups, beams * source_tokens * width / kNumbersANanosecond, [&](std::int64_t group) {
      const std::int64_t start = starts.as<std::int32_t>()[group], length = lengths.as<std::int32_t>()[group];
      require(length > 0, "a source is empty");
      cache.cell(start + length - 1);
      scratch.make_room(heads, length);
      for (std::int64_t token = 0; token < length; ++token) scratch.tokens[token] = cache.cell(start + token);
      loops().attend({heads, query.as<float>() + group * beams * width, width, beams, scratch.tokens.data(), length, width,
                      scratch.scores.data(), seen + group * beams * width, width});
    });
  }
};

}  // namespace dragoman
