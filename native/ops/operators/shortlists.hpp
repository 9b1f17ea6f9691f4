// Which rows of the output table may be chosen: all, or those of a shortlist.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../kernels.hpp"
#include "../operator.hpp"
#include "../validate.hpp"

namespace dragoman {

// Rows `begin` to `end` of the table.
struct TableRange {
  std::int64_t begin, end;

  bool operator==(const TableRange& other) const { return begin == other.begin && end == other.end; }
};

// A list is two ranges of the table: tokens that it shares with other lists, and its own. In each, tokens ascend.
class Shortlists {
 public:
  static constexpr std::int64_t kRanges = 2;

  // All `table_rows`, each of which is its own token; or the lists that are given: tokens int32 (table rows), ranges int64
  // (lists, 4), of which each begins at a tile, and perhaps the list of each group of rows, int32 (groups): else the first.
  Shortlists(const Tensor& tokens, const Tensor& ranges, const Tensor& of_groups, std::int64_t table_rows, std::int64_t rows)
      : tokens_(tokens.as<std::int32_t>()), ranges_(ranges.as<std::int64_t>()), everything_{0, table_rows} {
    require((tokens.data == nullptr) == (ranges.data == nullptr), "the tokens and the ranges of shortlists belong together");
    require(of_groups.data == nullptr || tokens.data != nullptr, "there are no shortlists to choose from");
    if (tokens.data == nullptr) return;
    require(tokens.sizes[0] == table_rows && ranges.sizes[0] > 0 && ranges.sizes[1] == 2 * kRanges,
            "shortlists must have a token for each row of the table, and ranges (lists, 4)");
    for (std::int64_t list = 0; list < ranges.sizes[0]; ++list)
      for (std::int64_t which = 0; which < kRanges; ++which) {
        const TableRange range = this->range(list, which);
        require(0 <= range.begin && range.begin <= range.end && range.end <= table_rows && range.begin % kTile == 0,
                "a shortlist is not in the table");
      }
    if (of_groups.data == nullptr || rows == 0) return;
    require(of_groups.sizes[0] > 0 && rows % of_groups.sizes[0] == 0, "there must be a shortlist for each group of rows");
    of_groups_ = of_groups.as<std::int32_t>(), group_rows_ = rows / of_groups.sizes[0];
    for (std::int64_t group = 0; group < of_groups.sizes[0]; ++group)
      require(of_groups_[group] >= 0 && of_groups_[group] < ranges.sizes[0], "there is no shortlist of this number");
  }

  std::int64_t of_row(std::int64_t row) const { return of_groups_ == nullptr ? 0 : of_groups_[row / group_rows_]; }

  TableRange range(std::int64_t list, std::int64_t which) const {
    if (ranges_ == nullptr) return which == 0 ? everything_ : TableRange{0, 0};
    const std::int64_t* range = ranges_ + 2 * (list * kRanges + which);
    return {range[0], range[1]};
  }

  // The tokens of the table's rows; null when each is its own.
  const std::int32_t* tokens() const { return tokens_; }

  // The row of the table that holds the token for this list, −1 where the list lacks it.
  std::int64_t place(std::int64_t list, std::int64_t token) const {
    if (tokens_ == nullptr) return token;
    for (std::int64_t which = 0; which < kRanges; ++which) {
      const TableRange in = range(list, which);
      const std::int32_t* end = tokens_ + in.end;
      const std::int32_t* found = std::lower_bound(tokens_ + in.begin, end, token);
      if (found != end && *found == token) return found - tokens_;
    }
    return -1;
  }

 private:
  const std::int32_t* tokens_;
  const std::int64_t* ranges_;
  TableRange everything_;
  const std::int32_t* of_groups_ = nullptr;
  std::int64_t group_rows_ = 1;
};

}  // namespace dragoman
