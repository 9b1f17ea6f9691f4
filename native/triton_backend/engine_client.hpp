// The backend's connections to the engine processes: every request gets exactly one last response, whatever happens to
// them.
//
// What an engine had in hand when it died is sent to another one, once; the next death with it makes it a suspect,
// which is refused, and is still refused when its caller sends it again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dispatcher.hpp"
#include "poller.hpp"
#include "request.hpp"

namespace dragoman {

// Gets what is not about one request; called from the client's own thread.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void take_series(const Frame& frame) = 0;
  virtual void take_metrics(const Engine& engine, const Frame& frame) = 0;
  virtual void take_table(const RoutingTable& table) = 0;
  // Something failed that no caller is told.
  virtual void log_error(const std::string& text) noexcept = 0;
};

class EngineClient {
 public:
  // `observer` outlives the client.
  EngineClient(const std::string& supervisor_socket, Observer& observer);
  ~EngineClient();  // requests without an answer are refused
  EngineClient(const EngineClient&) = delete;
  EngineClient& operator=(const EngineClient&) = delete;

  // Until every bundle has an engine that has translated something.
  bool wait_until_ready(double timeout_s);
  void submit(Request request, std::unique_ptr<Reply> reply);

  Limits limits();
  std::string status();
  // How many routing tables have been taken.
  std::uint64_t tables();

 private:
  struct LateAnswer {
    double due_s;
    PendingPointer pending;
    Frame frame;
  };

  void refuse_unless_answered(const PendingPointer& pending);

  // In the client's own thread.
  void run();
  void turn();
  void read_supervisor();
  void take_table(RoutingTable table);
  void serve_engine(const EnginePointer& engine, const Poller::Ready& ready);
  void take(Engine& engine, const Frame& frame);
  void take_room(Engine& engine, const Frame& frame);
  void deliver(const PendingPointer& pending, const Frame& frame);
  void deliver_late(double now_s) noexcept;
  void lose(const EnginePointer& engine);
  void watch_backlogs();
  void refuse_held(double now_s);
  void look_for_cancelled();
  void refuse(const Refused& refused) noexcept;
  template <typename Body>
  bool guarded(const char* what, const Body& body) noexcept;

  Observer& observer_;
  Channel supervisor_;
  const Poller poller_;
  // Of the thread alone: the next look at what waits, and the answers to cancelled requests, the first of which is due
  // first.
  double next_tick_s_ = 0.0;
  std::deque<LateAnswer> late_;
  std::mutex guard_;  // of everything below; never held while a reply is called
  std::condition_variable ready_changed_;
  Dispatcher dispatcher_;
  std::uint64_t tables_ = 0;
  bool ready_ = false;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace dragoman
