// Why the memory orders are right.
//
// 1. One caller at a time owns the job. `taken_` is a lock: exchange(acquire) takes it, store(release) gives it back, so
//    what one owner wrote to count_, part_, call_, body_ and error_ happens before the next owner touches them.
//
// 2. A helper that runs parts sees the job's description. The owner writes the description, then makes `job_` odd (a
//    sequentially consistent read-modify-write, which releases). A helper reads that odd number twice, the second time with
//    a sequentially consistent load (which acquires), before it reads the description.
//
// 3. No helper reads a description while it is changed. A helper first adds itself to `active_helpers_` and then checks that
//    `job_` is still the number it found; the owner first makes `job_` even and then waits until `active_helpers_` is zero.
//    All four are sequentially consistent, so in their one total order either the helper's increment comes before the
//    owner's load, and the owner waits; or the owner's change of `job_` comes before the helper's check, and the helper
//    leaves without reading anything. Acquire and release alone would not do: both could miss each other's write.
//    `job_` never has the same value twice, so a helper can't take a later job for the one it found.
//
// 4. What helpers computed is visible to the owner: each helper's decrement of `active_helpers_` releases, and the owner's
//    load of zero acquires from all of them (the decrements form one release sequence).
//
// 5. `next_` only gives out numbers, each once, whatever the order: relaxed. Its reset to zero happens before the job's
//    beginning by 2. A helper that is late (see 3) has taken no number, because it takes them only after its check.
//
// 6. No wake-up is lost. A helper increments `sleeping_` under the mutex and then loads `job_`; the owner makes `job_` odd
//    and then loads `sleeping_`. Both are sequentially consistent: the helper sees the job, or the owner sees the sleeper
//    and notifies under the mutex, which the helper holds until it really waits. A helper that sleeps on is no error in any
//    case: the owner runs all parts that no helper takes.
//
// 7. threads_, callers_ and paused_until_ are hints about cores. Nothing is read because of their values that needs an
//    order, so their loads are relaxed.
#include "thread_pool.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dragoman {
namespace {

// How long a helper polls before it sleeps: longer than the search between two decoder steps takes.
constexpr auto kPolling = std::chrono::microseconds(200);
// No part and no poll takes so long unless the core was given to another thread.
constexpr auto kPreempted = std::chrono::microseconds(100);
constexpr std::chrono::steady_clock::duration kShortestPause = std::chrono::milliseconds(2);
constexpr std::chrono::steady_clock::duration kLongestPause = std::chrono::milliseconds(250);
constexpr int kPausesToForget = 16;  // after so many pauses' time without another, the next one is short again
constexpr int kPollsPerClock = 64;
constexpr int kPartsPerThread = 4;  // the last one to finish is not waited for long

void spin() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

ThreadPool& ThreadPool::instance() noexcept {
  // Never destroyed, because helpers may poll it until the process ends; and never allocated, which could fail.
  alignas(ThreadPool) static unsigned char memory[sizeof(ThreadPool)];
  static ThreadPool* const pool = new (memory) ThreadPool;
  return *pool;
}

void ThreadPool::resize(int threads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (; helpers_ < threads - 1; ++helpers_) std::thread(&ThreadPool::help, this, helpers_).detach();
  threads_.store(std::max(threads, 1));
}

void ThreadPool::enter() { callers_.fetch_add(1); }

void ThreadPool::leave() { callers_.fetch_sub(1); }

// False if another caller's job is being shared.
bool ThreadPool::run_with_helpers(std::int64_t count, Call call, const void* body) {
  if (taken_.exchange(true, std::memory_order_acquire)) return false;
  count_ = count, call_ = call, body_ = body;
  part_ = std::max<std::int64_t>(count / (kPartsPerThread * threads_.load(std::memory_order_relaxed)), 1);
  next_.store(0, std::memory_order_relaxed);
  job_.fetch_add(1);
  if (sleeping_.load() > 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }
  run_parts();
  job_.fetch_add(1);
  wait_for_helpers();
  std::exception_ptr error;
  std::swap(error, error_);
  taken_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
  return true;
}

void ThreadPool::wait_for_helpers() {
  const auto since = Clock::now();
  for (bool waits_long = false; active_helpers_.load() > 0;) {
    for (int polls = 0; polls < kPollsPerClock && active_helpers_.load() > 0; ++polls) spin();
    if (waits_long) {
      sched_yield();
    } else if (Clock::now() - since > kPreempted) {
      waits_long = true;
      pause_helpers();
    }
  }
}

void ThreadPool::pause_helpers() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto now = Clock::now();
  const Clock::time_point last{Clock::duration(paused_until_.load())};
  last_pause_ = now - last > kPausesToForget * last_pause_ ? kShortestPause : std::min(2 * last_pause_, kLongestPause);
  paused_until_.store((now + last_pause_).time_since_epoch().count());
}

void ThreadPool::run_parts() {
  for (;;) {
    const std::int64_t begin = next_.fetch_add(part_, std::memory_order_relaxed);
    if (begin >= count_) return;
    try {
      call_(body_, begin, std::min(begin + part_, count_));
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

void ThreadPool::help(int number) {
  for (std::uint64_t seen = 0;;) {
    if (find_job(number, seen)) {
      active_helpers_.fetch_add(1);
      if (job_.load() == seen) run_parts();  // else it has ended meanwhile
      active_helpers_.fetch_sub(1);
    } else {
      std::unique_lock<std::mutex> lock(mutex_);
      sleeping_.fetch_add(1);
      wake_.wait(lock, [&] { return may_help(number) && job_.load() % 2 == 1; });
      sleeping_.fetch_sub(1);
    }
  }
}

// Polls for a job after `seen`; false when there was none for long, or there is no core to do it on.
bool ThreadPool::find_job(int number, std::uint64_t& seen) {
  auto now = Clock::now();
  for (const auto until = now + kPolling; now < until;) {
    for (int polls = 0; polls < kPollsPerClock; ++polls, spin())
      if (const std::uint64_t found = job_.load(std::memory_order_acquire); found % 2 == 1 && found != seen) {
        seen = found;
        return may_help(number);
      }
    const auto before = now;
    now = Clock::now();
    if (now - before > kPreempted) pause_helpers();
    if (!may_help(number)) return false;
  }
  return false;
}

}  // namespace dragoman
