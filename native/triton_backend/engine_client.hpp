// The backend's connections to the engine processes: every request gets exactly one last response, whatever happens to them.
//
// What an engine had in hand when it died is sent to another one, once; the next death with it makes it a suspect, which is
// refused, and is still refused when its caller sends it again.
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

#include "request.hpp"
#include "routes.hpp"
#include "suspects.hpp"

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
  using Refused = std::vector<std::pair<PendingPointer, Failure>>;

  // Under the lock.
  void place(const PendingPointer& pending, const std::string& model);
  EnginePointer route(PendingRequest& pending, const std::string& model);
  void refuse_suspect(PendingRequest& pending);
  void give(const PendingPointer& pending, const EnginePointer& engine);
  void give_held();
  void add(const PendingPointer& pending);
  void remove(const PendingRequest& pending);
  PendingPointer find(std::uint64_t number);
  std::optional<Failure> after_death(PendingRequest& pending, int deaths);
  void send(Engine& engine, const Frame& frame);

  // In the client's own thread.
  void run();
  void turn();
  void read_supervisor();
  void take_table(RoutingTable table);
  void serve_engine(const EnginePointer& engine, std::uint32_t events);
  void take(const Engine& engine, const Frame& frame);
  void finish(const PendingPointer& pending, const Frame& frame);
  void lose(const EnginePointer& engine);
  void watch(int operation, int descriptor, std::uint32_t events, Engine* engine) const;
  void watch_backlogs();
  void look_after_held(double now_s);
  void look_for_cancelled();
  void refuse(const Refused& refused) noexcept;
  template <typename Body>
  bool guarded(const char* what, const Body& body) noexcept;

  Observer& observer_;
  Channel supervisor_;
  const int poll_, wakeup_fd_;
  std::mutex guard_;  // of everything below; never held while a reply is called
  std::condition_variable ready_changed_;
  Routes routes_;
  std::map<std::uint64_t, PendingPointer> pending_;
  SuspectTable suspects_;
  std::size_t pending_bytes_ = 0;
  std::uint64_t last_number_ = 0, tables_ = 0;
  bool ready_ = false;
  double next_tick_s_ = 0.0;  // of the thread alone
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace dragoman
