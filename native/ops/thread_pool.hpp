// The threads of a process that compute together: its callers, and helpers that use the cores of absent callers.
//
// A decoder step is dozens of short pieces of work with microseconds between them. A helper that slept between two of them
// would wake up too late for each, so it polls for work for a while before it sleeps. It helps only while fewer callers are
// inside (`enter`, `leave`) than the pool has threads, and pauses while the operating system gives its core to others: a
// helper that lost its core, or had to be waited for, stays away, longer each time that happens again soon.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

namespace dragoman {

class ThreadPool {
 public:
  static ThreadPool& instance() noexcept;

  // How many threads may compute at once. Helpers are started when they are first needed, and never end.
  void resize(int threads);

  // A thread begins to call operators, or has finished for now.
  void enter();
  void leave();

  // Calls `body(begin, end)` for parts of 0 … `count`, some of them in helpers if there are any. The first exception that is
  // thrown in any part is thrown here, after all parts have ended.
  template <class Body>
  void parallel_for(std::int64_t count, const Body& body) {
    const auto call = [](const void* given, std::int64_t begin, std::int64_t end) {
      (*static_cast<const Body*>(given))(begin, end);
    };
    if (!may_help(0) || !run_with_helpers(count, call, &body)) body(0, count);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Call = void (*)(const void*, std::int64_t, std::int64_t);

  // Whether there is a core for this helper; they are numbered from 0.
  bool may_help(int number) const {
    const int callers = callers_.load(std::memory_order_relaxed);
    return (callers > 1 ? callers : 1) + number < threads_.load(std::memory_order_relaxed) &&
           Clock::now().time_since_epoch().count() >= paused_until_.load(std::memory_order_relaxed);
  }
  void pause_helpers();
  bool run_with_helpers(std::int64_t count, Call call, const void* body);
  void run_parts();
  void wait_for_helpers();
  void help(int number);
  bool find_job(int number, std::uint64_t& seen);

  // Each in its own cache line: a thread that polls one is not disturbed by writes to the others.
  alignas(64) std::atomic<int> threads_{1};
  std::atomic<int> callers_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<Clock::rep> paused_until_{0};
  Clock::duration last_pause_{};  // guarded by mutex_
  int helpers_ = 0;               // guarded by mutex_

  // The one job that is shared. `job_` counts beginnings and ends: it is odd while the job may be joined.
  alignas(64) std::atomic<std::uint64_t> job_{0};
  alignas(64) std::atomic<std::int64_t> next_{0};   // the first index that no thread has taken
  alignas(64) std::atomic<int> active_helpers_{0};  // that may still read what follows
  alignas(64) std::atomic<bool> taken_{false};      // by the caller whose job it is
  std::int64_t count_ = 0, part_ = 1;
  Call call_ = nullptr;
  const void* body_ = nullptr;
  std::exception_ptr error_;  // the first one; guarded by mutex_ while the job runs

  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace dragoman
