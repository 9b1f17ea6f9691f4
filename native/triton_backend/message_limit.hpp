// How large a message may be that a caller begins to send over gRPC.
//
// gRPC is linked into Triton 2.51 without a limit: it collects up to 2 GiB, copies them twice and only then gives them to
// the server. But what it reads comes through the C library. So the bytes of each connection are followed here, as far as
// the lengths of HTTP/2 frames and the five bytes before each message, which tell how long it will be.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dragoman {

class MessageLimit {
 public:
  // A connection begins. Before that nothing is looked at; what an earlier one has left is forgotten.
  void begin(std::uint32_t most_bytes);

  // Follow the next bytes of the connection; false once it has announced a message that is too long. What does not begin
  // as HTTP/2 (TLS, for instance) is not looked at.
  bool feed(const unsigned char* bytes, std::size_t count);

 private:
  enum class State : std::uint8_t { ignored, preface, header, pad_length, data, skipped, refused };

  // A message of which a part has come.
  struct Partial {
    std::uint32_t stream;
    std::uint32_t length;       // as far as it is read
    std::uint32_t left;         // bytes of it that are still to come
    std::uint8_t prefix_bytes;  // read of those before it
  };

  void take_preface(unsigned char byte);
  void take_header(unsigned char byte);
  bool take_data(const unsigned char* bytes, std::size_t count);
  void end_frame();
  Partial* partial();
  void forget();

  State state_ = State::ignored;
  std::uint32_t most_bytes_ = 0;
  std::size_t read_ = 0;                  // bytes of the preface or of the frame's header
  std::uint32_t left_ = 0, padding_ = 0;  // bytes of the frame
  std::uint32_t stream_ = 0;
  std::uint8_t kind_ = 0, flags_ = 0;
  Partial* partials_ = nullptr;  // kept for the next connection: there is no destructor, so that a table of these is zeros
  std::size_t count_ = 0, room_ = 0;
};

}  // namespace dragoman
