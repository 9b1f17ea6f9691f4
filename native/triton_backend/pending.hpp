// The requests without an answer yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "request.hpp"
#include "routes.hpp"
#include "suspects.hpp"

namespace dragoman {

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
  // Does it need a place in the engine's queue?
  bool is_queued() const { return frame.kind == Kind::translate || frame.kind == Kind::stream || frame.kind == Kind::score; }
};

using PendingPointer = std::shared_ptr<PendingRequest>;

// Bounded in number and in bytes; every request has a number of its own.
class PendingRequests {
 public:
  static constexpr std::size_t kMaxRequests = 8192;
  static constexpr std::size_t kMaxBytes = kMaxFrameBytes / 2;  // so that they fit into the backlog of any engine

  // Throws RefusedRequest when there is no room for `bytes` more.
  void require_room(std::size_t bytes) const;
  void add(const PendingPointer& pending);
  void remove(const PendingRequest& pending);

  bool empty() const { return requests_.empty(); }
  // nullptr when it has ended already.
  PendingPointer find(std::uint64_t number) const;
  // In the order of their arrival.
  template <typename Predicate>
  std::vector<PendingPointer> select(const Predicate& is_wanted) const {
    std::vector<PendingPointer> found;
    for (const auto& [number, pending] : requests_) {
      if (is_wanted(*pending)) found.push_back(pending);
    }
    return found;
  }
  std::vector<PendingPointer> held() const;

 private:
  std::map<std::uint64_t, PendingPointer> requests_;
  std::size_t bytes_ = 0;
  std::uint64_t last_number_ = 0;
};

}  // namespace dragoman
