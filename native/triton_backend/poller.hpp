// Waits for several sockets at once, and can be woken up from another thread.
#pragma once

#include <vector>

namespace dragoman {

class Poller {
 public:
  struct Ready {
    const void* owner;
    bool can_read, can_write;
  };

  Poller();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // `owner` comes back in Ready.
  void add(int descriptor, const void* owner) const;
  void watch_writing(int descriptor, const void* owner, bool is_writing) const;
  void remove(int descriptor) const;

  std::vector<Ready> wait(int timeout_ms) const;
  // The next `wait` returns at once, and so do all after it.
  void wake() const noexcept;

 private:
  void control(int operation, int descriptor, const void* owner, unsigned events) const;

  const int epoll_fd_, wakeup_fd_;
};

}  // namespace dragoman
