#include "message_limit.hpp"

#include <algorithm>
#include <cstdlib>

namespace dragoman {
namespace {

constexpr unsigned char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::size_t kPrefaceBytes = sizeof kPreface - 1, kHeaderBytes = 9, kPrefixBytes = 5;
constexpr std::uint8_t kData = 0, kReset = 3;         // kinds of frames
constexpr std::uint8_t kEndsStream = 1, kPadded = 8;  // flags of data
constexpr std::uint32_t kStreamBits = 0x7fffffff;
// Messages of one connection that have begun and not ended. A caller who opens more is refused: gRPC keeps much more than
// this for each of them.
constexpr std::size_t kMostPartials = 4096, kFirstPartials = 16;

}  // namespace

void MessageLimit::begin(std::uint32_t most_bytes) {
  Partial* const partials = partials_;
  const std::size_t room = room_;
  *this = MessageLimit();
  partials_ = partials;
  room_ = room;
  most_bytes_ = most_bytes;
  state_ = State::preface;
}

bool MessageLimit::feed(const unsigned char* bytes, std::size_t count) {
  while (count > 0 && state_ != State::refused && state_ != State::ignored) {
    std::size_t used = 1;
    bool is_allowed = true;
    switch (state_) {
      case State::preface:
        take_preface(*bytes);
        break;
      case State::header:
        take_header(*bytes);
        break;
      case State::pad_length:
        padding_ = std::min<std::uint32_t>(*bytes, --left_);  // more padding than frame is an error that gRPC finds
        left_ -= padding_;
        state_ = State::data;
        break;
      case State::data:
        used = std::min<std::size_t>(count, left_);
        is_allowed = take_data(bytes, used);
        left_ -= static_cast<std::uint32_t>(used);
        break;
      default:
        used = std::min<std::size_t>(count, left_);
        left_ -= static_cast<std::uint32_t>(used);
    }
    if (!is_allowed) state_ = State::refused;
    if ((state_ == State::data || state_ == State::skipped) && left_ == 0) end_frame();
    bytes += used;
    count -= used;
  }
  return state_ != State::refused;
}

void MessageLimit::take_preface(unsigned char byte) {
  if (byte != kPreface[read_]) {
    state_ = State::ignored;
  } else if (++read_ == kPrefaceBytes) {
    state_ = State::header;
    read_ = 0;
  }
}

// length (3 bytes), kind, flags, stream (4 bytes)
void MessageLimit::take_header(unsigned char byte) {
  if (read_ < 3) left_ = left_ << 8 | byte;
  if (read_ == 3) kind_ = byte;
  if (read_ == 4) flags_ = byte;
  if (read_ > 4) stream_ = stream_ << 8 | byte;
  if (++read_ < kHeaderBytes) return;
  stream_ &= kStreamBits;
  if (kind_ == kReset) forget();
  if (kind_ != kData) {
    state_ = State::skipped;
  } else if ((flags_ & kPadded) != 0 && left_ > 0) {
    state_ = State::pad_length;
  } else {
    state_ = State::data;
  }
}

bool MessageLimit::take_data(const unsigned char* bytes, std::size_t count) {
  if (count == 0) return true;
  Partial* const message = partial();
  if (message == nullptr) return false;
  while (count > 0) {
    if (message->left > 0) {
      const auto used = std::min<std::size_t>(count, message->left);
      message->left -= static_cast<std::uint32_t>(used);
      bytes += used;
      count -= used;
      continue;
    }
    if (message->prefix_bytes > 0) message->length = message->length << 8 | *bytes;  // the first says: is it compressed?
    ++bytes;
    --count;
    if (++message->prefix_bytes < kPrefixBytes) continue;
    if (message->length > most_bytes_) return false;
    message->left = message->length;
    message->length = message->prefix_bytes = 0;
  }
  if (message->left == 0 && message->prefix_bytes == 0) forget();
  return true;
}

void MessageLimit::end_frame() {
  if (padding_ > 0) {
    left_ = padding_;
    padding_ = 0;
    state_ = State::skipped;
    return;
  }
  if (kind_ == kData && (flags_ & kEndsStream) != 0) forget();
  state_ = State::header;
  read_ = left_ = stream_ = 0;
}

// That of the frame's stream; nullptr when there is no room for another.
MessageLimit::Partial* MessageLimit::partial() {
  for (std::size_t at = count_; at-- > 0;) {
    if (partials_[at].stream == stream_) return &partials_[at];
  }
  if (count_ == room_) {
    const std::size_t room = std::max(kFirstPartials, 2 * room_);
    auto* const grown = room > kMostPartials ? nullptr : std::realloc(partials_, room * sizeof(Partial));
    if (grown == nullptr) return nullptr;
    partials_ = static_cast<Partial*>(grown);
    room_ = room;
  }
  partials_[count_] = {stream_, 0, 0, 0};
  return &partials_[count_++];
}

void MessageLimit::forget() {
  for (std::size_t at = count_; at-- > 0;) {
    if (partials_[at].stream != stream_) continue;
    partials_[at] = partials_[--count_];
    return;
  }
}

}  // namespace dragoman
