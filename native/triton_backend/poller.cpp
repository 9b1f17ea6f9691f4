#include "poller.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace dragoman {
namespace {

constexpr int kMaxEvents = 16;

}  // namespace

Poller::Poller() : epoll_fd_(::epoll_create1(EPOLL_CLOEXEC)), wakeup_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (epoll_fd_ < 0 || wakeup_fd_ < 0) {
    const std::string reason = std::strerror(errno);
    ::close(epoll_fd_);
    ::close(wakeup_fd_);
    throw std::runtime_error("no file descriptors can be had to wait for engines: " + reason);
  }
  add(wakeup_fd_, this);
}

Poller::~Poller() {
  ::close(epoll_fd_);
  ::close(wakeup_fd_);
}

void Poller::add(int descriptor, const void* owner) const { control(EPOLL_CTL_ADD, descriptor, owner, EPOLLIN); }

void Poller::watch_writing(int descriptor, const void* owner, bool is_writing) const {
  control(EPOLL_CTL_MOD, descriptor, owner, is_writing ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void Poller::remove(int descriptor) const { control(EPOLL_CTL_DEL, descriptor, nullptr, 0); }

std::vector<Poller::Ready> Poller::wait(int timeout_ms) const {
  epoll_event events[kMaxEvents];
  const int count = ::epoll_wait(epoll_fd_, events, kMaxEvents, timeout_ms);
  std::vector<Ready> found;
  for (int at = 0; at < count; ++at) {
    const bool can_read = (events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
    found.push_back({events[at].data.ptr, can_read, (events[at].events & EPOLLOUT) != 0});
  }
  return found;
}

void Poller::wake() const noexcept {
  const std::uint64_t one = 1;
  if (::write(wakeup_fd_, &one, sizeof one) < 0) {
    // it is full: then it wakes already
  }
}

void Poller::control(int operation, int descriptor, const void* owner, unsigned events) const {
  epoll_event event{};
  event.events = events;
  event.data.ptr = const_cast<void*>(owner);
  ::epoll_ctl(epoll_fd_, operation, descriptor, &event);
}

}  // namespace dragoman
