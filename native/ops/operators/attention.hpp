// Attention over a source's own tokens, over a row's past, and over the source from the decoder.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "../kernels.hpp"
#include "../operator.hpp"
#include "../validate.hpp"

namespace dragoman {

constexpr std::int64_t kFloatsPerNanosecond = 8;  // of keys, with their values, that one thread reads

inline Heads heads_of(const Attributes& attributes) {
  return {attributes.integer("heads", 1, 1 << 12), attributes.integer("head_dim", 1, 1 << 14), attributes.real("scale")};
}

inline Dimension width_of(const Shapes& shapes) {
  const auto heads = shapes.integer("heads"), size = shapes.integer("head_dim");
  return heads && size && *heads > 0 && *size > 0 && *heads <= kLargestSize && *size <= kLargestSize
             ? Dimension{*heads * *size, ""}
             : Dimension{};
}

// A table of biases (rows, heads), whose row `zero` is that of a query's own position.
inline RelativeBias bias_of(const Tensor& table, std::int64_t heads, bool both_sides) {
  if (table.data == nullptr) return {nullptr, 0, 0};
  const std::int64_t rows = table.sizes[0];
  require(rows > 0 && table.sizes[1] == heads, "the bias must be (distances, heads)");
  require(!both_sides || rows % 2 == 1, "the bias must have as many distances on both sides of zero");
  return {table.as<float>(), rows, both_sides ? rows / 2 : rows - 1};
}

// What attention needs beside its inputs, kept from call to call.
struct Scratch {
  std::vector<const float*> keys;
  std::vector<float> scores;

  void make_room(const Heads& heads, std::int64_t key_count) {
    const auto keys_needed = static_cast<std::size_t>(key_count);
    const auto scores_needed = static_cast<std::size_t>(score_count(heads, key_count));
    if (keys.size() < keys_needed) keys.resize(keys_needed);
    if (scores.size() < scores_needed) scores.resize(scores_needed);
  }
};

inline thread_local Scratch scratch;

// One layer of a KV cache (layers, slots, 2 · width): a slot holds the key of a token and then its value.
struct CacheLayer {
  float* first;
  std::int64_t slots;
  std::int64_t slot_size;

  CacheLayer(const Tensor& cache, std::int64_t layer, std::int64_t width)
      : first(cache.as<float>()), slots(cache.sizes[1]), slot_size(cache.sizes[2]) {
    require(layer < cache.sizes[0], "the cache has no such layer");
    require(slot_size == 2 * width, "the cache's slots must hold a key and a value");
    first += layer * slots * slot_size;
  }

  float* slot(std::int64_t number) const {
    require(number >= 0 && number < slots, "a row names a slot that the cache does not have");
    return first + number * slot_size;
  }
};

// Every token of a source sees all of it: packed (tokens, 3 · width), starts and lengths (sources), and perhaps a bias
// (2 · reach + 1, heads), whose row r is added where key − query = r − reach; the first and last row hold beyond them, too.
struct SourceAttention {
  static constexpr const char* kName = "SourceAttention";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kInt32, ElementType::kInt32,
                                            ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat};
  static constexpr std::size_t kRequired = 3;
  Heads heads;

  explicit SourceAttention(const Attributes& attributes) : heads(heads_of(attributes)) {}

  static void infer(const Shapes& shapes) { shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), width_of(shapes)}); }

  void compute(const Context& context) const {
    const Tensor packed = context.input(0, 2), starts = context.input(1, 1), lengths = context.input(2, 1);
    const RelativeBias bias = bias_of(context.optional_input(3, 2), heads.count, true);
    const std::int64_t width = heads.width(), tokens = packed.sizes[0], sources = starts.sizes[0];
    require(packed.sizes[1] == 3 * width, "queries, keys and values must be (tokens, 3 · heads · head_dim)");
    require(lengths.sizes[0] == sources, "there must be as many starts as lengths");
    const auto *start_of = starts.as<std::int32_t>(), *length_of = lengths.as<std::int32_t>();
    std::int64_t end = 0, pairs = 0;
    for (std::int64_t source = 0; source < sources; ++source) {
      require(start_of[source] == end && length_of[source] > 0, "sources must follow one another, and none may be empty");
      end += length_of[source];
      pairs += std::int64_t{length_of[source]} * length_of[source];
    }
    require(end == tokens, "the sources must be all of the tokens");
    auto* output = context.output<float>(0, tokens, width);
    context.each(sources, pairs * width / kFloatsPerNanosecond, [&](std::int64_t source) {
      const std::int64_t start = start_of[source], length = length_of[source];
      const float* first = packed.as<float>() + start * 3 * width;
      scratch.make_room(heads, length);
      for (std::int64_t token = 0; token < length; ++token) scratch.keys[token] = first + token * 3 * width + width;
      kernels().attend({heads, first, 3 * width, length, 0, scratch.keys.data(), length, width, bias, scratch.scores.data(),
                        output + start * width, width});
    });
  }
};

// The new token of each row joins its past and sees it: packed (rows, 3 · width), cache (layers, slots, 2 · width), slots
// (rows, room), positions (rows), and perhaps a bias (reach + 1, heads), whose row r is added where key − query = r − reach.
//
// The token's key and value are written to the cache, into the slot at the row's position; each row must have its own. That
// is declared as a second output, which is the cache in the same memory, for graphs that want the order of reads and writes
// to be seen.
struct StepAttention {
  static constexpr const char* kName = "StepAttention";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kInt32,
                                            ElementType::kInt32, ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat, ElementType::kFloat};
  static constexpr std::size_t kRequired = 4, kRequiredOutputs = 1;
  static constexpr Shared kAlias = {1, 1};
  Heads heads;
  std::int64_t layer;

  explicit StepAttention(const Attributes& attributes)
      : heads(heads_of(attributes)), layer(attributes.integer("layer", 0, kLargestSize)) {}

  static void infer(const Shapes& shapes) { shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), width_of(shapes)}); }

  void compute(const Context& context) const {
    const Tensor packed = context.input(0, 2), cache = context.input(1, 3), slots = context.input(2, 2),
                 positions = context.input(3, 1);
    const RelativeBias bias = bias_of(context.optional_input(4, 2), heads.count, false);
    const std::int64_t width = heads.width(), rows = packed.sizes[0], room = slots.sizes[1];
    const CacheLayer past(cache, layer, width);
    require(packed.sizes[1] == 3 * width, "queries, keys and values must be (rows, 3 · heads · head_dim)");
    require(slots.sizes[0] == rows && positions.sizes[0] == rows, "slots and positions must have as many rows as there are");
    const auto* position_of = positions.as<std::int32_t>();
    std::int64_t keys_in_all = rows;
    for (std::int64_t row = 0; row < rows; ++row) {
      require(position_of[row] >= 0 && position_of[row] < room, "a row's position is beyond its slots");
      keys_in_all += position_of[row];
    }
    auto* output = context.output<float>(0, rows, width);
    const void* written = context.output_data(1, cache.sizes, cache.rank);
    require(written == nullptr || written == cache.data, "the cache must not be a graph's output: it is written in place");
    context.each(rows, keys_in_all * width / kFloatsPerNanosecond, [&](std::int64_t row) {
      const std::int64_t position = position_of[row];
      const float* query = packed.as<float>() + row * 3 * width;
      const std::int32_t* own = slots.as<std::int32_t>() + row * room;
      std::memcpy(past.slot(own[position]), query + width, static_cast<std::size_t>(2 * width) * sizeof(float));
      scratch.make_room(heads, position + 1);
      for (std::int64_t token = 0; token <= position; ++token) scratch.keys[token] = past.slot(own[token]);
      kernels().attend({heads, query, width, 1, position, scratch.keys.data(), position + 1, width, bias,
                        scratch.scores.data(), output + row * width, width});
    });
  }
};

// Rows see their group's source: query (rows, width), cache (layers, slots, 2 · width), starts and lengths (groups).
struct CrossAttention {
  static constexpr const char* kName = "CrossAttention";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kInt32,
                                            ElementType::kInt32};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat};
  Heads heads;
  std::int64_t layer;

  explicit CrossAttention(const Attributes& attributes)
      : heads(heads_of(attributes)), layer(attributes.integer("layer", 0, kLargestSize)) {}

  static void infer(const Shapes& shapes) { shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), width_of(shapes)}); }

  void compute(const Context& context) const {
    const Tensor query = context.input(0, 2), starts = context.input(2, 1), lengths = context.input(3, 1);
    const std::int64_t width = heads.width(), rows = query.sizes[0], groups = starts.sizes[0];
    const CacheLayer source(context.input(1, 3), layer, width);
    require(query.sizes[1] == width, "queries must be (rows, heads · head_dim)");
    require(lengths.sizes[0] == groups, "there must be as many starts as lengths");
    require(groups > 0 && rows % groups == 0, "every group must have the same number of rows");
    const std::int64_t beams = rows / groups;
    const auto *start_of = starts.as<std::int32_t>(), *length_of = lengths.as<std::int32_t>();
    std::int64_t source_tokens = 0;
    for (std::int64_t group = 0; group < groups; ++group) {
      require(
          start_of[group] >= 0 && length_of[group] > 0 && std::int64_t{start_of[group]} + length_of[group] <= source.slots,
          "a source lies outside of the cache, or is empty");
      source_tokens += length_of[group];
    }
    auto* output = context.output<float>(0, rows, width);
    context.each(groups, beams * source_tokens * width / kFloatsPerNanosecond, [&](std::int64_t group) {
      const std::int64_t start = start_of[group], length = length_of[group], first = group * beams * width;
      scratch.make_room(heads, length);
      for (std::int64_t token = 0; token < length; ++token)
        scratch.keys[token] = source.first + (start + token) * source.slot_size;
      kernels().attend({heads,
                        query.as<float>() + first,
                        width,
                        beams,
                        0,
                        scratch.keys.data(),
                        length,
                        width,
                        {nullptr, 0, 0},
                        scratch.scores.data(),
                        output + first,
                        width});
    });
  }
};

}  // namespace dragoman
