#include "channel.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace dragoman {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 18;
constexpr std::size_t kShortBytes = std::size_t{1} << 14;

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
  std::string bytes = frame.encoded();
  const bool overtakes = bytes.size() <= kShortBytes && frame.kind != Kind::cancel;
  const std::lock_guard<std::mutex> lock(guard_);
  if (waiting_ + bytes.size() > kMaxFrameBytes) throw ChannelClosed("the other side has stopped reading");
  waiting_ += bytes.size();
  (overtakes ? short_ : long_).push_back(std::move(bytes));
  write_waiting();
}

void Channel::flush() {
  const std::lock_guard<std::mutex> lock(guard_);
  write_waiting();
}

void Channel::write_waiting() {
  while (waiting_ > 0) {
    if (sent_ == current_.size()) {
      auto& next = short_.empty() ? long_ : short_;
      current_ = std::move(next.front());
      next.pop_front();
      sent_ = 0;
    }
    const std::size_t written = write(current_.data() + sent_, current_.size() - sent_);
    sent_ += written;
    waiting_ -= written;
    if (sent_ < current_.size()) break;  // the socket is full
  }
  if (waiting_ == 0) {  // a long one's memory is not kept
    current_ = std::string();
    sent_ = 0;
  }
  has_backlog_.store(waiting_ > 0, std::memory_order_relaxed);
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
