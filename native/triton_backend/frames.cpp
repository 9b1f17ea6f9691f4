#include "frames.hpp"

namespace dragoman {
namespace {

constexpr std::size_t kLength = sizeof(std::uint32_t);
constexpr std::size_t kKeptBytes = std::size_t{1} << 20;  // of memory for what comes next
constexpr std::size_t kHeader = sizeof(std::uint8_t) + sizeof(std::uint64_t) + sizeof(std::uint32_t);

Frame decoded(const char* body, std::size_t size) {
  Frame frame{static_cast<Kind>(body[0]), number_at<std::uint64_t>(body + 1), {}};
  const auto count = number_at<std::uint32_t>(body + 9);
  std::size_t at = kHeader;
  for (std::uint32_t part = 0; part < count; ++part) {
    if (size - at < kLength) throw BrokenStream("a message ends before its last part");
    const auto length = number_at<std::uint32_t>(body + at);
    at += kLength;
    if (size - at < length) throw BrokenStream("a message ends inside a part");
    frame.parts.emplace_back(body + at, length);
    at += length;
  }
  return frame;
}

}  // namespace

std::string Frame::encoded() const {
  std::size_t size = kHeader;
  for (const auto& part : parts) size += kLength + part.size();
  if (size > kMaxFrameBytes) throw BrokenStream("a message is longer than a frame may be");
  std::string text;
  text.reserve(kLength + size);
  append_number(text, static_cast<std::uint32_t>(size));
  append_number(text, static_cast<std::uint8_t>(kind));
  append_number(text, request);
  append_number(text, static_cast<std::uint32_t>(parts.size()));
  for (const auto& part : parts) {
    append_number(text, static_cast<std::uint32_t>(part.size()));
    text += part;
  }
  return text;
}

void read_numbers(const std::string& part, std::initializer_list<std::uint64_t*> places) {
  if (part.size() != places.size() * sizeof(std::uint64_t)) throw BrokenStream("a part with another number of numbers");
  const char* at = part.data();
  for (std::uint64_t* const place : places) {
    *place = number_at<std::uint64_t>(at);
    at += sizeof(std::uint64_t);
  }
}

void FrameReader::feed(const char* bytes, std::size_t count, std::vector<Frame>& frames) {
  held_.append(bytes, count);
  std::size_t start = 0;
  while (held_.size() - start >= kLength) {
    const std::size_t size = number_at<std::uint32_t>(held_.data() + start);
    if (size < kHeader || size > kMaxFrameBytes) throw BrokenStream("a message claims an impossible size");
    if (held_.size() - start - kLength < size) {
      if (start == 0) held_.reserve(kLength + size);  // megabytes would be copied each time that they outgrow it
      break;
    }
    frames.push_back(decoded(held_.data() + start + kLength, size));
    start += kLength + size;
  }
  held_.erase(0, start);
  if (held_.empty() && held_.capacity() > kKeptBytes) held_ = std::string();
}

}  // namespace dragoman
