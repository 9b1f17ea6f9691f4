// What becomes of each request: which engine has it, and why it is refused.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pending.hpp"
#include "routes.hpp"
#include "suspects.hpp"

namespace dragoman {

// The seconds of Python's time.monotonic.
double monotonic_s();

// Requests that end with a failure. Their callers are told when the lock is not held any more.
using Refused = std::vector<std::pair<PendingPointer, Failure>>;

// Everything that the EngineClient's lock guards. No call waits, and none calls a reply.
class Dispatcher {
 public:
  const RoutingTable& table() const { return routes_.table(); }
  const std::vector<EnginePointer>& engines() const { return routes_.all(); }
  bool empty() const { return pending_.empty(); }

  // Gives a new request to an engine, or holds it until there is one; throws RefusedRequest.
  void place(const PendingPointer& pending, const std::string& model);
  // Gives the requests that are held to engines that answer now.
  void give_held();
  // Forgets a request that could not be placed; whether it was still without an answer.
  bool withdraw(const PendingRequest& pending);
  // All requests, which are refused because the client ends.
  Refused close() const;

  // Takes a new table; the engines that were not connected to yet.
  std::vector<EnginePointer> update(RoutingTable table) { return routes_.update(std::move(table)); }
  // The request that a frame of an engine answers; nullptr when it has ended already.
  PendingPointer take(const Frame& frame, bool is_last);
  // An engine has told how much room its queue has; it is told how many requests were refused meanwhile.
  void take_room(Engine& engine, const QueueRoom& room);
  // An engine has died: what it had in hand is given to another one, or refused.
  Refused lose(const EnginePointer& engine);

  // No request waits for ever; and while the server drains no engine is started again.
  Refused refuse_held(double now_s);
  // The requests whose callers have not gone away, as far as is known.
  std::vector<PendingPointer> not_cancelled() const;
  // A caller has gone away: the engine that has its request is told. Refused where none has it.
  Refused cancel(const PendingPointer& pending);

 private:
  EnginePointer route(PendingRequest& pending, const std::string& model);
  void refuse_suspect(PendingRequest& pending);
  static void refuse_if_full(const PendingRequest& pending, const EnginePointer& engine);
  void give(const PendingPointer& pending, const EnginePointer& engine);
  void count_deaths(const std::vector<PendingPointer>& in_hand);

  Routes routes_;
  PendingRequests pending_;
  SuspectTable suspects_;
};

}  // namespace dragoman
