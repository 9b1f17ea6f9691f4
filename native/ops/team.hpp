// The threads of a process: those that call operators, and helpers for who has a core to spare.
//
// A step of a model is dozens of short pieces of work, with microseconds between them. A helper that slept in between would
// be woken too late for each, so it looks for work without sleeping, for a while. It does so only while fewer threads are at
// work than the team has (`begin_turn`, `end_turn`), and not while the system gives the cores to others: a helper that was
// taken from its core, or was waited for, stands back, the longer the oftener that happens.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

namespace dragoman {

class Team {
 public:
  static Team& instance();

  // How many threads may be at work together. Helpers are started when they are first needed, and never end.
  void resize(int threads);

  // A thread begins to call operators, or has done so for now.
  void begin_turn();
  void end_turn();

  // Calls `body(begin, end)` for parts of 0 … `count`, some of them in a helper if there is one. What is thrown in any of
  // them is thrown here.
  template <class Body>
  void share(std::int64_t count, const Body& body) {
    const auto call = [](const void* given, std::int64_t begin, std::int64_t end) {
      (*static_cast<const Body*>(given))(begin, end);
    };
    if (!may_help(0) || !share_with_helpers(count, call, &body)) body(0, count);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Call = void (*)(const void*, std::int64_t, std::int64_t);

  // Whether there is a core for this helper; they are numbered from 0.
  bool may_help(int number) const {
    const int working = working_.load(std::memory_order_relaxed);
    return (working > 1 ? working : 1) + number < threads_.load(std::memory_order_relaxed) &&
           Clock::now().time_since_epoch().count() >= back_at_.load(std::memory_order_relaxed);
  }
  void stand_back();
  bool share_with_helpers(std::int64_t count, Call call, const void* body);
  void work_on_it();
  void wait_for_helpers();
  void help(int number);
  bool find_work(int number, std::uint64_t& seen);

  // Each in a cache line of its own: what one thread looks at all the time another does not write for other reasons.
  alignas(64) std::atomic<int> threads_{1};
  std::atomic<int> working_{0};
  std::atomic<int> asleep_{0};
  std::atomic<Clock::rep> back_at_{0};  // until then nobody helps
  Clock::duration absence_{};           // how long that was, the last time
  int helpers_ = 0;

  // The one piece of work that is shared; `number_` is odd while it may be joined.
  alignas(64) std::atomic<std::uint64_t> number_{0};
  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<int> inside_{0};
  alignas(64) std::atomic<bool> taken_{false};
  std::int64_t count_ = 0, part_ = 1;
  Call call_ = nullptr;
  const void* body_ = nullptr;
  std::exception_ptr error_;  // the first of all

  std::mutex guard_;  // of the error, of sleeping, of starting and of standing back
  std::condition_variable work_;
};

}  // namespace dragoman
