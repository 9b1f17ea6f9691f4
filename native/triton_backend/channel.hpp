// A unix socket that carries frames and never blocks: what can't be sent now waits in a bounded backlog.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
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

// `send` may be called from any thread, `receive` from one. Short frames overtake long ones that wait, so that a sentence
// does not wait for somebody's megabytes; a cancellation stays behind what it may cancel.
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
  void write_waiting();
  std::size_t write(const char* bytes, std::size_t count);

  int socket_;
  FrameReader reader_;
  std::mutex guard_;
  std::deque<std::string> short_, long_;
  std::string current_;      // the frame that is being sent, …
  std::size_t sent_ = 0;     // … and how much of it was
  std::size_t waiting_ = 0;  // bytes of all of them that were not
  // Relaxed: it tells the polling thread what to wait for and guards no data, which is read under the mutex. A value that is
  // seen late is corrected in that thread's next turn, a tick later at most.
  std::atomic<bool> has_backlog_{false};
};

}  // namespace dragoman
