// One request on its way through the backend.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "failure.hpp"
#include "frames.hpp"
#include "routes.hpp"
#include "suspects.hpp"

namespace dragoman {

// What a caller asks.
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

// A request without an answer yet.
struct PendingRequest {
  Frame frame;
  std::unique_ptr<Reply> reply;
  std::string bundle{};
  std::size_t bytes = 0;
  EnginePointer engine{};      // none while it is held for the next one
  double held_since_s = 0.0;   // while it has no engine
  int deaths = 0;              // engines that died with it in hand
  bool has_delivered = false;  // a caller who has read a part must not get it again from another engine
  bool cancelled = false;
  std::optional<Fingerprint> fingerprint{};  // computed only while there are suspects

  bool is_session() const { return frame.kind == Kind::decode; }
};

using PendingPointer = std::shared_ptr<PendingRequest>;

}  // namespace dragoman
