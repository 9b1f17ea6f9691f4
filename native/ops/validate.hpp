#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace dragoman {

// A wrong graph or a wrong input is an error with its reason, never a crash.
inline void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

// An attribute from a graph: products of two such sizes fit an int64 with room to spare.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;

inline std::int64_t size_between(std::int64_t least, std::int64_t value, std::int64_t most, const char* name) {
  if (value < least || value > most)
    throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + ", and must be from " +
                                std::to_string(least) + " to " + std::to_string(most));
  return value;
}

}  // namespace dragoman
