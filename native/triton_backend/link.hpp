// Sends requests to engines, and gives each exactly one last answer, whatever happens to them.
//
// What dragoman.serving.triton.stub_link is for a Triton stub in Python; tests/unit/serving/test_stub_link.py holds for both.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "routes.hpp"

namespace dragoman {

// Where the answer to one request goes. Nobody touches it after its last word.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void deliver(const Frame& frame) = 0;  // an answer, or a chunk with more to come
  virtual void fail(const Failure& failure) = 0;
  virtual bool is_cancelled() = 0;
};

// Who hears what is said beside requests; called from the link's own thread.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void take_series(const Frame& frame) = 0;
  virtual void take_metrics(const Engine& engine, const Frame& frame) = 0;
  virtual void take_table(const RoutingTable& table) = 0;
};

class Link {
 public:
  Link(const std::string& supervisor, std::string name, Listener* listener = nullptr);
  ~Link();  // requests without an answer are refused
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Until every bundle has an engine that has translated something.
  bool wait_until_routed(double timeout_s);
  // Send a request that starts with its options (of a session: its name); `reply` hears of it exactly once.
  // Nobody reads the details of a `bare` answer.
  void submit(Kind kind, std::vector<std::string> parts, std::unique_ptr<Reply> reply, bool bare = false);
  // How many routing tables have been taken.
  std::uint64_t tables();

 private:
  struct Pending {
    Frame frame;
    std::unique_ptr<Reply> reply;
    std::string bundle;
    EnginePointer engine;  // none while it is held for the next one
    double since_s = 0.0;
    bool started = false, held_before = false, cancelled = false;
  };
  using PendingPointer = std::shared_ptr<Pending>;
  using Refused = std::vector<std::pair<PendingPointer, Failure>>;

  // Under the lock.
  bool place(const PendingPointer& pending, Failure& refusal);
  void give(const PendingPointer& pending, const EnginePointer& engine);
  PendingPointer end(std::uint64_t number);
  static void send(Engine& engine, const Frame& frame);

  // In the link's own thread.
  void run();
  void read_supervisor();
  void take_table(const RoutingTable& table);
  void serve_engine(const EnginePointer& engine, std::uint32_t events);
  void take(const Engine& engine, const Frame& frame);
  void lose(const EnginePointer& engine);
  void watch(int operation, int descriptor, std::uint32_t events, Engine* engine) const;
  void watch_backlogs();
  void expire_held(double now_s);
  void look_for_cancelled();
  static void refuse(const Refused& refused);

  const std::string name_;
  Listener* const listener_;
  Channel supervisor_;
  const int poll_, bell_;
  std::mutex guard_;  // of routes and pending; never held while a reply is called
  std::condition_variable routed_changed_;
  Routes routes_;
  std::map<std::uint64_t, PendingPointer> pending_;
  std::uint64_t last_number_ = 0, tables_ = 0;
  bool routed_ = false;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

double monotonic_s();

}  // namespace dragoman
