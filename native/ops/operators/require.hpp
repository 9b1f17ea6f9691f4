#pragma once

#include <stdexcept>

namespace dragoman {

// A wrong graph is an error that says what is wrong, never a crash.
inline void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

}  // namespace dragoman
