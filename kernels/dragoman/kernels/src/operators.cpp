// The operators, as ONNX Runtime calls them: they look at sizes, and hand rows to whoever computes them.
#include <algorithm>
#include <numeric>
#include <vector>

#include "attention.hpp"
#include "product.hpp"
#include "rows.hpp"
#include "runtime.hpp"
#include "simd.hpp"

namespace dragoman {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

Heads heads_of(const Attributes& attributes) {
  const Heads heads{attributes.integer("heads"), attributes.integer("head_dim"), attributes.real("scale")};
  require(heads.count > 0 && heads.size > 0 && heads.size % kLanes == 0, "head_dim must be a multiple of eight");
  return heads;
}

// Where attention keeps what it needs for one query or a few.
struct Scratch {
  std::vector<const float*> tokens;
  std::vector<float> scores;

  void make_room(const Heads& heads, std::int64_t seen) {
    const auto cells = static_cast<std::size_t>(seen), numbers = static_cast<std::size_t>(4 * heads.count * (seen + kLanes));
    if (tokens.size() < cells) tokens.resize(cells);
    if (scores.size() < numbers) scores.resize(numbers);
  }
};

thread_local Scratch scratch;

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
    context.each(starts.sizes[0], tokens * tokens * width, [&](std::int64_t source) {
      const std::int64_t start = starts.as<std::int32_t>()[source], length = lengths.as<std::int32_t>()[source];
      require(start >= 0 && length > 0 && start + length <= tokens, "a source lies outside of the tokens");
      const float* first = packed.as<float>() + start * 3 * width;
      scratch.make_room(heads, length);
      for (std::int64_t token = 0; token < length; ++token) scratch.tokens[token] = first + token * 3 * width + width;
      attend(heads, first, 3 * width, length, scratch.tokens.data(), length, width, scratch.scores.data(),
             seen + start * width, width);
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
    context.each(rows, rows * room * width, [&](std::int64_t row) {
      const std::int64_t position = positions.as<std::int32_t>()[row];
      require(position >= 0 && position < room, "a row stands beyond its cells");
      const float* query = packed.as<float>() + row * 3 * width;
      const std::int32_t* own = cells.as<std::int32_t>() + row * room;
      std::memcpy(cache.cell(own[position]), query + width, static_cast<std::size_t>(2 * width) * sizeof(float));
      scratch.make_room(heads, position + 1);
      for (std::int64_t token = 0; token <= position; ++token) scratch.tokens[token] = cache.cell(own[token]);
      attend(heads, query, width, 1, scratch.tokens.data(), position + 1, width, scratch.scores.data(), seen + row * width,
             width);
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
    context.each(groups, beams * source_tokens * 2 * width, [&](std::int64_t group) {
      const std::int64_t start = starts.as<std::int32_t>()[group], length = lengths.as<std::int32_t>()[group];
      require(length > 0, "a source is empty");
      cache.cell(start + length - 1);
      scratch.make_room(heads, length);
      for (std::int64_t token = 0; token < length; ++token) scratch.tokens[token] = cache.cell(start + token);
      attend(heads, query.as<float>() + group * beams * width, width, beams, scratch.tokens.data(), length, width,
             scratch.scores.data(), seen + group * beams * width, width);
    });
  }
};

// norm(x + update): both (rows, width), γ and β (width).
struct AddNorm {
  static constexpr const char* kName = "AddNorm";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kFloat, Type::kFloat, Type::kFloat};
  static constexpr Type kOutputs[] = {Type::kFloat};
  float epsilon;

  explicit AddNorm(const Attributes& attributes) : epsilon(attributes.real("epsilon")) {}

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2), update = context.input(1, 2);
    const Tensor gamma = context.input(2, 1), beta = context.input(3, 1);
    const std::int64_t rows = x.sizes[0], width = x.sizes[1];
    require(update.sizes[0] == rows && update.sizes[1] == width, "inputs do not fit together");
    require(gamma.sizes[0] == width && beta.sizes[0] == width && width % kLanes == 0, "inputs do not fit together");
    float* to = context.output<float>(0, rows, width);
    context.each(rows, rows * width * 4, [&](std::int64_t row) {
      add_norm(x.as<float>() + row * width, update.as<float>() + row * width, gamma.as<float>(), beta.as<float>(), epsilon, width,
               to + row * width);
    });
  }
};

// x · sigmoid(x), x (rows, width).
struct Silu {
  static constexpr const char* kName = "Silu";
  static constexpr Type kInputs[] = {Type::kFloat};
  static constexpr Type kOutputs[] = {Type::kFloat};

  explicit Silu(const Attributes&) {}

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const std::int64_t rows = x.sizes[0], width = x.sizes[1];
    float* to = context.output<float>(0, rows, width);
    context.each(rows, rows * width * 8,
                 [&](std::int64_t row) { silu(x.as<float>() + row * width, width, to + row * width); });
  }
};

// A tensor of weights in tiles, (tiles, 16 · inputs).
void require_tiles(const Tensor& tiles, std::int64_t inputs, std::int64_t outputs) {
  require(inputs > 0 && inputs % (2 * kQuad) == 0, "the number of inputs must be a multiple of eight");
  require(tiles.sizes[0] == tiles_of(outputs) && tiles.sizes[1] == kTile * inputs, "the weights have other sizes");
}

// act(x W · scale + b): x (rows, inputs), weights in tiles, scale and offset (outputs), and perhaps a bias (outputs).
struct Linear {
  static constexpr const char* kName = "Linear";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kInt8, Type::kFloat, Type::kFloat, Type::kFloat};
  static constexpr Type kOutputs[] = {Type::kFloat};
  static constexpr std::size_t kRequired = 4;
  Activation activation;

  explicit Linear(const Attributes& attributes) : activation(static_cast<Activation>(attributes.integer("activation"))) {}

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2), tiles = context.input(1, 2), scale = context.input(2, 1),
                 offset = context.input(3, 1), bias = context.optional_input(4, 1);
    const std::int64_t rows = x.sizes[0], inputs = x.sizes[1], outputs = scale.sizes[0];
    require_tiles(tiles, inputs, outputs);
    require(offset.sizes[0] == outputs && (bias.data == nullptr || bias.sizes[0] == outputs), "inputs do not fit together");
    float* to = context.output<float>(0, rows, outputs);
    thread_local std::vector<std::uint8_t> room_for_integers;
    thread_local std::vector<Row> room_for_rows;
    room_for_integers.resize(std::max(room_for_integers.size(), static_cast<std::size_t>(rows * inputs)));
    room_for_rows.resize(std::max(room_for_rows.size(), static_cast<std::size_t>(rows)));
    std::uint8_t* integers = room_for_integers.data();
    Row* rows_as = room_for_rows.data();
    for (std::int64_t row = 0; row < rows; ++row)
      rows_as[row] = quantise(x.as<float>() + row * inputs, inputs, integers + row * inputs);
    const Weights weights{tiles.as<std::int8_t>(), scale.as<float>(), offset.as<float>(), bias.as<float>(), inputs, outputs};
    const std::int64_t all_tiles = tiles.sizes[0], at_once = tiles_at_once(inputs);
    context.each((all_tiles + at_once - 1) / at_once, rows * inputs * outputs / 8, [&](std::int64_t part) {
      const std::int64_t begin = part * at_once, end = std::min(begin + at_once, all_tiles);
      multiply_tiles(weights, begin, end, integers, rows_as, rows, activation, to);
    });
  }
};

// Rows of a table in int8, in tiles of sixteen of them with a scale (vocabulary) each, of the tokens (rows).
struct Embed {
  static constexpr const char* kName = "Embed";
  static constexpr Type kInputs[] = {Type::kInt8, Type::kFloat, Type::kInt64};
  static constexpr Type kOutputs[] = {Type::kFloat};

  explicit Embed(const Attributes&) {}

  void compute(const Context& context) const {
    const Tensor table = context.input(0, 2), scales = context.input(1, 1), tokens = context.input(2, 1);
    const std::int64_t rows = tokens.sizes[0], width = table.sizes[1] / kTile, vocabulary = scales.sizes[0];
    require_tiles(table, width, vocabulary);
    float* to = context.output<float>(0, rows, width);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t token = tokens.as<std::int64_t>()[row];
      require(token >= 0 && token < vocabulary, "a token is not in the vocabulary");
      const float scale = scales.as<float>()[token];
      for (std::int64_t quad = 0; quad < width / kQuad; ++quad) {
        const std::int8_t* values = table.as<std::int8_t>() + place_of(token, quad, width);
        for (std::int64_t at = 0; at < kQuad; ++at) to[row * width + quad * kQuad + at] = static_cast<float>(values[at]) * scale;
      }
    }
  }
};

// The best next tokens: logits (rows, vocabulary), candidates (1), and perhaps a bias (vocabulary).
struct BestTokens {
  static constexpr const char* kName = "BestTokens";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kInt64, Type::kFloat};
  static constexpr Type kOutputs[] = {Type::kInt64, Type::kFloat, Type::kFloat};
  static constexpr std::size_t kRequired = 2;

  explicit BestTokens(const Attributes&) {}

  void compute(const Context& context) const {
    const Tensor logits = context.input(0, 2), bias = context.optional_input(2, 1);
    const std::int64_t wanted = context.input(1, 1).as<std::int64_t>()[0];
    const std::int64_t rows = logits.sizes[0], vocabulary = logits.sizes[1];
    require(bias.data == nullptr || bias.sizes[0] == vocabulary, "inputs do not fit together");
    require(wanted > 0 && wanted <= vocabulary, "candidates must be at least one and no more than the vocabulary");
    auto* tokens = context.output<std::int64_t>(0, rows, wanted);
    auto* log_probs = context.output<float>(1, rows, wanted);
    auto* best_logits = context.output<float>(2, rows, wanted);
    context.each(rows, rows * vocabulary * 2, [&](std::int64_t row) {
      const std::int64_t at = row * wanted;
      best_of(logits.as<float>() + row * vocabulary, bias.as<float>(), vocabulary, wanted,
              {tokens + at, log_probs + at, best_logits + at});
    });
  }
};

template <class Kernel>
void add(const OrtApi* api, OrtDomain* domain) {
  static const Operator<Kernel> instance;
  check(api, Call::kAddToDomain, static_cast<OrtStatus* (*)(OrtDomain*, const OrtCustomOp*)>(nullptr), domain,
        static_cast<const OrtCustomOp*>(&instance));
}

void add_all(const OrtApi* api, OrtSessionOptions* options) {
  OrtDomain* domain = nullptr;  // ONNX Runtime's sessions refer to it for as long as they live: it is never released
  check(api, Call::kCreateDomain, static_cast<OrtStatus* (*)(const char*, OrtDomain**)>(nullptr), "dragoman", &domain);
  add<SourceAttention>(api, domain);
  add<StepAttention>(api, domain);
  add<CrossAttention>(api, domain);
  add<AddNorm>(api, domain);
  add<Silu>(api, domain);
  add<Embed>(api, domain);
  add<Linear>(api, domain);
  add<BestTokens>(api, domain);
  check(api, Call::kAddDomain, static_cast<OrtStatus* (*)(OrtSessionOptions*, OrtDomain*)>(nullptr), options, domain);
}

struct OrtApiBase {
  const OrtApi* (*api)(std::uint32_t);
  const char* (*version)();
};

}  // namespace
}  // namespace dragoman

// The one name that ONNX Runtime looks for.
extern "C" __attribute__((visibility("default"))) dragoman::OrtStatus* RegisterCustomOps(
    dragoman::OrtSessionOptions* options, const dragoman::OrtApiBase* base) {
  const dragoman::OrtApi* api = base->api(dragoman::kApiVersion);
  try {
    dragoman::add_all(api, options);
    return nullptr;
  } catch (const std::exception& error) {
    return dragoman::failure(api, error.what());
  }
}
