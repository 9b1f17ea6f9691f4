// What a caller asks, and where the answer goes.
#pragma once

#include <string>
#include <vector>

#include "failure.hpp"
#include "frames.hpp"

namespace dragoman {

struct Request {
  Kind kind;
  std::string bundle;                // as the caller named it; empty: the only one
  std::vector<std::string> parts{};  // from the options on
  bool wants_details = true;
};

// Where the answer to one request goes. It is not touched after its last response.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void deliver(const Frame& frame) = 0;  // an answer, or a chunk with more to come
  virtual void fail(const Failure& failure) = 0;
  virtual bool is_cancelled() = 0;
};

}  // namespace dragoman
