// Text that leaves for a caller: always valid UTF-8, whatever a caller or a file put into it.
#pragma once

#include <string>

namespace dragoman {

// What is no UTF-8 becomes U+FFFD, one for each byte.
std::string valid_utf8(const std::string& bytes);

// A JSON string with its quotes.
std::string json_string(const std::string& text);

}  // namespace dragoman
