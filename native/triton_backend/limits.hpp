// What a server takes in one request (dragoman.wire.Limits): checked against the sizes that Triton gives, before
// anything is copied.
#pragma once

#include <cstdint>

namespace dragoman {

struct Limits {
  // Until the supervisor's first routing table has others.
  std::uint64_t max_texts = 256;
  std::uint64_t max_text_bytes = 100'000;
  std::uint64_t max_request_bytes = std::uint64_t{8} << 20;  // all inputs together
  std::uint64_t max_options_bytes = 16'384;
  std::uint64_t max_command_bytes = 262'144;
  std::uint64_t max_name_bytes = 256;  // of a bundle or a session; the same for every server
};

}  // namespace dragoman
