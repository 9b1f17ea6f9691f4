#include "text.hpp"

#include <cstdint>

namespace dragoman {
namespace {

constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr const char* kHexDigits = "0123456789abcdef";

// The length of the character that starts at `at`, or 0: no UTF-8 (too long a form and surrogates included).
std::size_t character_bytes(const std::string& text, std::size_t at) {
  const auto byte = [&text](std::size_t index) { return static_cast<std::uint8_t>(text[index]); };
  const std::uint8_t lead = byte(at);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < length) return 0;
  for (std::size_t index = 1; index < length; ++index) {
    if ((byte(at + index) & 0xc0) != 0x80) return 0;
  }
  const std::uint8_t second = byte(at + 1);
  const bool is_overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool is_surrogate = lead == 0xed && second >= 0xa0;
  const bool is_too_large = lead == 0xf4 && second >= 0x90;
  return is_overlong || is_surrogate || is_too_large ? 0 : length;
}

}  // namespace

std::string valid_utf8(const std::string& bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = character_bytes(bytes, at);
    if (length == 0) {
      text += kReplacement;
    } else {
      text.append(bytes, at, length);
    }
    at += length == 0 ? 1 : length;
  }
  return text;
}

std::string json_string(const std::string& text) {
  std::string json = "\"";
  for (const char character : valid_utf8(text)) {
    if (character == '"' || character == '\\') {
      json += '\\';
      json += character;
    } else if (const auto code = static_cast<std::uint8_t>(character); code < 0x20) {
      json += "\\u00";
      json += kHexDigits[code >> 4];
      json += kHexDigits[code & 0xf];
    } else {
      json += character;
    }
  }
  return json + '"';
}

}  // namespace dragoman
