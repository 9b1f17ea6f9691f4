// One message between two of our processes, as dragoman.serving.ipc.frames writes it:
//   u32 bytes that follow · u8 kind · u64 request · u32 parts · (u32 length · bytes) for each part; little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace dragoman {

enum class Kind : std::uint8_t {
  hello = 1,
  translate = 2,
  stream = 3,
  encode = 4,
  decode = 5,
  cancel = 6,
  score = 7,
  refused = 8,
  answer = 11,
  chunk = 12,
  error = 13,
  metrics = 14,
  room = 15,
  series = 29,
  routes = 30,
};

constexpr std::size_t kMaxFrameBytes = std::size_t{256} << 20;

// What came over a socket is none of our frames.
struct BrokenStream : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Frame {
  Kind kind;
  std::uint64_t request = 0;
  std::vector<std::string> parts;

  std::string encoded() const;
};

// The parts of a request's frame: when it arrived, its options (of a session: its name), then the texts or the command.
constexpr std::size_t kOptionsPart = 1, kSessionPart = 1;

// Turns the bytes of a stream into frames, however they were cut on the way.
class FrameReader {
 public:
  void feed(const char* bytes, std::size_t count, std::vector<Frame>& frames);

 private:
  std::string held_;
};

// Numbers as they lie in memory; the processes run on one machine, which is a little-endian one.
template <typename Number>
void append_number(std::string& text, Number number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <typename Number>
Number number_at(const char* bytes) {
  Number number;
  __builtin_memcpy(&number, bytes, sizeof number);
  return number;
}

// The one number that a part holds.
template <typename Number>
Number number_in(const std::string& part) {
  if (part.size() != sizeof(Number)) throw BrokenStream("a part has another size than the number it should hold");
  return number_at<Number>(part.data());
}

// The unsigned numbers that a part holds, exactly as many as there are places for them.
void read_numbers(const std::string& part, std::initializer_list<std::uint64_t*> places);

}  // namespace dragoman
