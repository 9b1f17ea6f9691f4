// A unix socket that carries frames and never blocks: what can't be sent now waits in a bounded backlog.
#pragma once

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "frames.hpp"

namespace dragoman {

// The other side is gone.
struct ChannelClosed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// `send` may be called from any thread, `receive` from one.
class Channel {
 public:
  explicit Channel(const std::string& path);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int descriptor() const { return socket_; }
  bool has_backlog() const { return has_backlog_.load(std::memory_order_relaxed); }

  void send(const Frame& frame);
  void flush();
  // The frames that have arrived.
  void receive(std::vector<Frame>& frames);

 private:
  std::size_t write(const char* bytes, std::size_t count);

  int socket_;
  FrameReader reader_;
  std::mutex guard_;
  std::string backlog_;
  std::atomic<bool> has_backlog_{false};
};

}  // namespace dragoman
