// Rows times tiles of weights. Some rows and some tiles at a time, so that their sums stay in registers: what is read of a
// row is used for several tiles, and what is read of a tile for several rows.
#include "declared.hpp"
#include "tiles.hpp"
#include "vector.hpp"

namespace dragoman::DRAGOMAN_PROCESSOR {

namespace {

// A vector of numbers that belong to outputs, of which there may be fewer than lanes in the last tile.
DRAGOMAN_INLINE Floats load_of(const float* outputs, std::int64_t count) {
  return count >= kLanes ? load(outputs) : load_some(outputs, count, 0.0f);
}

DRAGOMAN_INLINE Floats scaled(const Epilogue& epilogue, std::int64_t, std::int64_t, std::int64_t, Floats sums) {
  return sums * epilogue.factor;
}

DRAGOMAN_INLINE Floats scaled(const Epilogue& epilogue, std::int64_t row, std::int64_t output, std::int64_t count,
                              Ints sums) {
  const QuantisedRow as = epilogue.rows[row];
  return __builtin_convertvector(sums, Floats) * (load_of(epilogue.scale + output, count) * as.step) +
         load_of(epilogue.offset + output, count) * as.lowest;
}

// A part of a tile's sums, as the numbers that they stand for.
template <class Product, class Sums>
DRAGOMAN_INLINE void write(const Product& product, std::int64_t row, std::int64_t output, Sums sums) {
  const Epilogue& epilogue = product.epilogue;
  const std::int64_t count = product.outputs - output;
  if (count <= 0) return;
  Floats y = scaled(epilogue, row, output, count, sums);
  if (epilogue.bias != nullptr) y += load_of(epilogue.bias + output, count);
  float* to = product.output + row * product.outputs + output;
  if (epilogue.gated) y *= load_of(to, count);
  if (count >= kLanes)
    store(to, y);
  else
    store_some(to, count, y);
}

// What is fetched from memory while some tiles are multiplied. `kOwn`: the same tiles' weights, some steps before they are
// needed, and in the end the beginnings of the following tiles. `kFollowing`: weights that follow, from `from` on, `lines`
// cache lines with every step through the inputs.
enum class Fetch { kNothing, kOwn, kFollowing };

struct Ahead {
  Fetch what = Fetch::kNothing;
  const char* from = nullptr;
  int lines = 0;
};

constexpr int kLine = 64;
constexpr std::int64_t kStepsAhead = 32;

DRAGOMAN_INLINE void fetch(const void* from) { __builtin_prefetch(from, 0, 2); }  // to the second cache

template <class Kind, int kRows, int kTiles, Fetch kFetch, class Product>
void multiply_block(const Product& product, std::int64_t row, std::int64_t tile, Ahead ahead) {
  const std::int64_t inputs = product.inputs, tile_size = inputs * kTile;
  const auto* x = product.x + row * inputs;
  const auto* weights = product.tiles + tile * tile_size;
  typename Kind::Sums sums[kRows][kTiles] = {};
  // `distance`: from weights to those of the same tile that are fetched for `kOwn`.
  const auto multiply_inputs = [&](std::int64_t begin, std::int64_t end, std::int64_t distance) DRAGOMAN_INLINED {
    for (std::int64_t input = begin; input < end; input += Kind::kInputs) {
      if constexpr (kFetch == Fetch::kFollowing)
        for (int line = 0; line < ahead.lines; ++line, ahead.from += kLine) fetch(ahead.from);
      typename Kind::Weights read[kTiles];
      repeat<kTiles>([&](auto t) DRAGOMAN_INLINED {
        const auto* from = weights + t * tile_size + input * kTile;
        read[t] = Kind::weights(from);
        if constexpr (kFetch == Fetch::kOwn) fetch(from + distance);
      });
      repeat<kRows>([&](auto r) DRAGOMAN_INLINED {
        const typename Kind::Broadcast spread = Kind::spread(x + r * inputs + input);
        repeat<kTiles>([&](auto t) DRAGOMAN_INLINED { Kind::add(sums[r][t], read[t], spread); });
      });
    }
  };
  if constexpr (kFetch == Fetch::kOwn) {
    const std::int64_t steps = kStepsAhead * Kind::kInputs, turn = inputs > steps ? inputs - steps : 0;
    multiply_inputs(0, turn, steps * kTile);
    multiply_inputs(turn, inputs, steps * kTile + (kTiles - 1) * tile_size);
  } else {
    multiply_inputs(0, inputs, 0);
  }
  repeat<kRows>([&](auto r) DRAGOMAN_INLINED {
    repeat<kTiles>([&](auto t) DRAGOMAN_INLINED {
      repeat<kParts>([&](auto part) DRAGOMAN_INLINED {
        write(product, row + r, (tile + t) * kTile + part * kLanes, Kind::part(sums[r][t], part));
      });
    });
  });
}

template <class Kind>
constexpr int tiles_for(int rows) {
  const int tiles = Kind::kSums / (rows * static_cast<int>(sizeof(typename Kind::Sums) / sizeof(Floats)));
  return tiles > kTilesAtOnce ? kTilesAtOnce : tiles < 1 ? 1 : tiles;
}

template <class Kind, int kRows, class Product>
void multiply_rows(const Product& product, std::int64_t row, std::int64_t begin, std::int64_t end, Ahead ahead) {
  constexpr int kTiles = tiles_for<Kind>(kRows);
  std::int64_t tile = begin;
  for (; tile + kTiles <= end; tile += kTiles) {
    if (ahead.what == Fetch::kFollowing) {
      multiply_block<Kind, kRows, kTiles, Fetch::kFollowing>(product, row, tile, ahead);
      ahead.from += ahead.lines * kLine * (product.inputs / Kind::kInputs);
    } else if (kTiles == kTilesAtOnce && ahead.what == Fetch::kOwn) {
      multiply_block<Kind, kRows, kTiles, Fetch::kOwn>(product, row, tile, ahead);
    } else {
      multiply_block<Kind, kRows, kTiles, Fetch::kNothing>(product, row, tile, ahead);
    }
  }
  for (; tile < end; ++tile) multiply_block<Kind, kRows, 1, Fetch::kNothing>(product, row, tile, ahead);
}

// `rows` of them, at most kMost, with a loop made for just so many.
template <class Kind, int kMost, class Product>
DRAGOMAN_INLINE void multiply_some(const Product& product, std::int64_t rows, std::int64_t row, std::int64_t begin,
                                   std::int64_t end, Ahead ahead) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return multiply_some<Kind, kMost - 1>(product, rows, row, begin, end, ahead);
  }
  multiply_rows<Kind, kMost>(product, row, begin, end, ahead);
}

// The first of several parts of the rows waits for its weights, the others find them in the nearest caches: meanwhile the
// last ones fetch as many that follow. For a single part the processor's own prefetcher does it, but it stops at the end of
// each page: where some rows keep the loop busy between two reads, weights are fetched a little ahead of them. Weights of
// small products are in a cache anyhow.
template <class Kind, class Product>
DRAGOMAN_INLINE Ahead ahead_of(const Product& product, std::int64_t part, std::int64_t parts, std::int64_t begin,
                               std::int64_t end) {
  constexpr std::int64_t kLeastInAll = 1 << 19, kLeast = 1 << 15, kMostForFewRows = 1 << 16;
  constexpr int kLinesAStep =
      static_cast<int>(kTile * Kind::kInputs * sizeof(*product.tiles)) / kLine * tiles_for<Kind>(Kind::kMostRows);
  const std::int64_t tile_bytes = kTile * product.inputs * static_cast<std::int64_t>(sizeof(*product.tiles));
  const std::int64_t bytes = (end - begin) * tile_bytes;
  constexpr std::int64_t kLeastRows = 4;
  const bool few = parts < kLinesAStep;
  if (bytes < kLeast || product.outputs / kTile * tile_bytes < kLeastInAll) return {};
  if (parts == 1 || (few && bytes > kMostForFewRows))
    return {part == 0 && product.rows / parts >= kLeastRows ? Fetch::kOwn : Fetch::kNothing};
  if (end * kTile >= product.outputs) return {};
  const int lines = few ? static_cast<int>((kLinesAStep + parts - 1) / parts) : 1,
            passes = (kLinesAStep + lines - 1) / lines;
  const std::int64_t pass = part - (parts - passes);
  if (pass < 0) return {};
  return {Fetch::kFollowing, reinterpret_cast<const char*>(product.tiles) + end * tile_bytes + pass * (bytes / passes),
          lines};
}

// What was just written to some outputs of all rows.
template <class Product>
void activate_part(const Product& product, std::int64_t begin, std::int64_t end) {
  const std::int64_t count = (end < product.outputs ? end : product.outputs) - begin;
  for (std::int64_t row = 0; row < product.rows; ++row)
    activate(product.epilogue.activation, product.output + row * product.outputs + begin, count);
}

// All rows, in parts of about the same size.
template <class Kind, class Product>
DRAGOMAN_INLINE void multiply(const Product& product, std::int64_t begin, std::int64_t end) {
  const std::int64_t parts = (product.rows + Kind::kMostRows - 1) / Kind::kMostRows;
  for (std::int64_t part = 0, row = 0; part < parts; ++part) {
    const std::int64_t rows = (product.rows - row) / (parts - part);
    multiply_some<Kind, Kind::kMostRows>(product, rows, row, begin, end, ahead_of<Kind>(product, part, parts, begin, end));
    row += rows;
  }
  if (product.epilogue.activation != Activation::kNone) activate_part(product, begin * kTile, end * kTile);
}

}  // namespace

void multiply_floats(const FloatMatMul& product, std::int64_t begin, std::int64_t end) {
  multiply<FloatTile>(product, begin, end);
}

void multiply_integers(const IntegerMatMul& product, std::int64_t begin, std::int64_t end) {
  multiply<IntegerTile>(product, begin, end);
}

}  // namespace dragoman::DRAGOMAN_PROCESSOR
