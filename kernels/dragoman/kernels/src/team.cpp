#include "team.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dragoman {
namespace {

// How long a helper looks for work before it sleeps: longer than a search between two steps takes.
constexpr auto kPatience = std::chrono::microseconds(200);
constexpr int kLooks = 64;         // between two looks at the clock
constexpr int kParts = 4;          // pieces a thread: the last one to finish is not waited for long
constexpr int kLooksAtMost = 4096;  // for a helper that the system has taken from its core

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Team& Team::instance() {
  static Team* const team = new Team;  // never ends: helpers may look at it until the process does
  return *team;
}

void Team::resize(int threads) {
  const std::lock_guard<std::mutex> lock(guard_);
  threads_.store(std::max(threads, 1));
  for (; helpers_ < threads - 1; ++helpers_) std::thread(&Team::help, this, helpers_).detach();
}

void Team::begin_turn() { working_.fetch_add(1); }

void Team::end_turn() { working_.fetch_sub(1); }

bool Team::share_with_helpers(std::int64_t count, Call call, const void* body) {
  if (taken_.exchange(true, std::memory_order_acquire)) return false;  // by another thread
  count_ = count, call_ = call, body_ = body;
  part_ = std::max<std::int64_t>(count / (kParts * threads_.load(std::memory_order_relaxed)), 1);
  next_.store(0, std::memory_order_relaxed);
  number_.fetch_add(1);
  if (asleep_.load() > 0) {
    const std::lock_guard<std::mutex> lock(guard_);
    work_.notify_all();
  }
  work_on_it();
  number_.fetch_add(1);
  // Whoever came in before that is still at its last part.
  for (int looks = 0; inside_.load() > 0; ++looks) looks < kLooksAtMost ? pause() : static_cast<void>(sched_yield());
  std::exception_ptr error;
  std::swap(error, error_);
  taken_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
  return true;
}

void Team::work_on_it() {
  for (;;) {
    const std::int64_t begin = next_.fetch_add(part_, std::memory_order_relaxed);
    if (begin >= count_) return;
    try {
      call_(body_, begin, std::min(begin + part_, count_));
    } catch (...) {
      const std::lock_guard<std::mutex> lock(guard_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

void Team::help(int number) {
  for (std::uint64_t seen = 0;;) {
    if (find_work(number, seen)) {
      inside_.fetch_add(1);
      if (number_.load() == seen) work_on_it();  // else it has ended meanwhile
      inside_.fetch_sub(1);
    } else {
      std::unique_lock<std::mutex> lock(guard_);
      asleep_.fetch_add(1);
      work_.wait(lock, [&] { return may_help(number) && number_.load() % 2 == 1; });
      asleep_.fetch_sub(1);
    }
  }
}

// Looks for a piece of work after `seen`; false when there was none for long, or all are at work themselves.
bool Team::find_work(int number, std::uint64_t& seen) const {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  do {
    for (int looks = 0; looks < kLooks; ++looks, pause())
      if (const std::uint64_t found = number_.load(std::memory_order_acquire); found % 2 == 1 && found != seen) {
        seen = found;
        return may_help(number);
      }
  } while (may_help(number) && std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace dragoman
