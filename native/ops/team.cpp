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
// Nobody takes so long for a part, or between two looks, unless the core was given to another.
constexpr auto kGone = std::chrono::microseconds(100);
constexpr std::chrono::steady_clock::duration kShortAbsence = std::chrono::milliseconds(2), kLongAbsence = std::chrono::milliseconds(250);
constexpr int kLongAgo = 16;  // absences; after so many that went well, the next one is short again
constexpr int kLooks = 64;         // between two looks at the clock
constexpr int kParts = 4;          // pieces a thread: the last one to finish is not waited for long

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
  wait_for_helpers();
  std::exception_ptr error;
  std::swap(error, error_);
  taken_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
  return true;
}

void Team::wait_for_helpers() {
  const auto since = Clock::now();
  for (bool waits_long = false; inside_.load() > 0;) {
    for (int looks = 0; looks < kLooks && inside_.load() > 0; ++looks) pause();
    if (waits_long) {
      sched_yield();
    } else if (Clock::now() - since > kGone) {
      waits_long = true;
      stand_back();
    }
  }
}

void Team::stand_back() {
  const std::lock_guard<std::mutex> lock(guard_);
  const auto now = Clock::now();
  const Clock::time_point last{Clock::duration(back_at_.load())};
  absence_ = now - last > kLongAgo * absence_ ? kShortAbsence : std::min(2 * absence_, kLongAbsence);
  back_at_.store((now + absence_).time_since_epoch().count());
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

// Looks for a piece of work after `seen`; false when there was none for long, or there is no core to do it on.
bool Team::find_work(int number, std::uint64_t& seen) {
  auto now = Clock::now();
  for (const auto until = now + kPatience; now < until;) {
    for (int looks = 0; looks < kLooks; ++looks, pause())
      if (const std::uint64_t found = number_.load(std::memory_order_acquire); found % 2 == 1 && found != seen) {
        seen = found;
        return may_help(number);
      }
    const auto before = now;
    now = Clock::now();
    if (now - before > kGone) stand_back();
    if (!may_help(number)) return false;
  }
  return false;
}

}  // namespace dragoman
