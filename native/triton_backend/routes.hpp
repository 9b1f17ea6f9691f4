// Which engine process a request goes to, by the supervisor's routing table.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "channel.hpp"
#include "failure.hpp"
#include "limits.hpp"

namespace dragoman {

// What the supervisor sends whenever something changes (dragoman.serving.triton.routes.RoutingTable).
struct RoutingTable {
  std::vector<std::string> bundles{};
  std::map<std::string, std::vector<std::string>> sockets{};  // of the engines of each bundle that answer now
  bool draining = false;
  double hold_s = 10.0;                             // how long a request waits for an engine while there is none
  std::map<std::string, std::uint64_t> restarts{};  // since the supervisor started, by what was restarted
  Limits limits{};
  std::string status{};  // what the model server_status answers

  static RoutingTable from(const Frame& frame);
  bool is_complete() const;  // every bundle has an engine
};

// How many requests an engine's queue takes: `places` more when it had read the first `read` of them
// (dragoman.serving.process.queue_room).
struct QueueRoom {
  std::uint64_t read = 0;
  std::uint64_t places = UINT64_MAX;  // until the engine has told
  std::uint64_t retry_after_ms = 0;
};

// A connection to one engine process; `key` starts the name of every session it holds.
struct Engine {
  Engine(std::string bundle, const std::string& socket);

  const std::string bundle, socket, key;
  Channel channel;
  int open = 0;               // requests that it has not answered yet
  std::uint64_t sent = 0;     // requests for its queue, since it was connected to
  std::uint64_t refused = 0;  // requests that were not sent because it had no room, since it was last told of them
  QueueRoom room{};
  bool writing = false;  // is it watched for when it can take more?

  bool is_full() const { return sent - room.read >= room.places; }
  // A connection that is closed is no error here: the thread that reads from it sees the same, and deals with everything
  // that was sent there.
  void send(const Frame& frame);
};

using EnginePointer = std::shared_ptr<Engine>;

// The engines that answer, and those that only finish what they have.
class Routes {
 public:
  // Take a new table; the engines that were not connected to yet.
  std::vector<EnginePointer> update(RoutingTable table);
  void forget(const EnginePointer& engine);

  const RoutingTable& table() const { return table_; }
  const std::vector<EnginePointer>& all() const { return all_; }
  // The least busy engine that answers for `bundle` now, one with room if there is one, of idle ones the first; none
  // while it is being restarted.
  EnginePointer engine(const std::string& bundle) const;
  EnginePointer engine_of_session(const std::string& session) const;
  // The bundle that a caller means by the tensor MODEL; throws RefusedRequest when there is none.
  std::string bundle_for(const std::string& model) const;

 private:
  RoutingTable table_;
  std::vector<EnginePointer> all_;
};

}  // namespace dragoman
