#include "channel.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace dragoman {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 18;

ChannelClosed closed(const std::string& what) { return ChannelClosed(what + ": " + std::strerror(errno)); }

}  // namespace

Channel::Channel(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_ < 0) throw closed("no socket can be opened");
  if (path.size() >= sizeof address.sun_path) {
    ::close(socket_);
    throw ChannelClosed(path + " is too long for the name of a socket");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int reason = errno;
    ::close(socket_);
    errno = reason;
    throw closed("no process listens at " + path);
  }
  ::fcntl(socket_, F_SETFL, ::fcntl(socket_, F_GETFL) | O_NONBLOCK);
}

Channel::~Channel() { ::close(socket_); }

void Channel::send(const Frame& frame) {
  const std::string bytes = frame.encoded();
  const std::lock_guard<std::mutex> lock(guard_);
  const std::size_t sent = backlog_.empty() ? write(bytes.data(), bytes.size()) : 0;
  if (backlog_.size() + bytes.size() - sent > kMaxFrameBytes) throw ChannelClosed("the other side has stopped reading");
  backlog_.append(bytes, sent);
  has_backlog_.store(!backlog_.empty(), std::memory_order_relaxed);
}

void Channel::flush() {
  const std::lock_guard<std::mutex> lock(guard_);
  backlog_.erase(0, write(backlog_.data(), backlog_.size()));
  has_backlog_.store(!backlog_.empty(), std::memory_order_relaxed);
}

void Channel::receive(std::vector<Frame>& frames) {
  static thread_local std::vector<char> buffer(kReadBytes);
  const ssize_t count = ::recv(socket_, buffer.data(), buffer.size(), 0);
  if (count == 0) throw ChannelClosed("the other side has closed the connection");
  if (count > 0) return reader_.feed(buffer.data(), static_cast<std::size_t>(count), frames);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) throw closed("the connection broke");
}

std::size_t Channel::write(const char* bytes, std::size_t count) {
  if (count == 0) return 0;
  const ssize_t sent = ::send(socket_, bytes, count, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  throw closed("the connection broke");
}

}  // namespace dragoman
