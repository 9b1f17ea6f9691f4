#include "asked_model.hpp"

#include <cstdlib>
#include <stdexcept>

namespace dragoman {
namespace {

struct NoJson : std::exception {};

// Reads as much of a JSON object as is needed to find one of its values.
class Scanner {
 public:
  explicit Scanner(const std::string& text) : text_(text) {}

  AskedModel model() {
    AskedModel asked;
    if (peek() == '\0') return asked;
    if (peek() != '{') {
      skip_value();
      return asked;
    }
    take('{');
    while (peek() != '}') {
      const std::string key = string();
      take(':');
      const char first = peek();
      const std::size_t began = at_;
      if (first == '"') {
        const std::string value = string();
        if (key == "model") asked.named = true, asked.name = value;
      } else {
        skip_value();
        if (key == "model" && text_.compare(began, at_ - began, "null") == 0) asked.named = false;
        else if (key == "model") asked.named = true, asked.name = text_.substr(began, at_ - began);
      }
      if (peek() != '}') take(',');
    }
    return asked;
  }

 private:
  // The next character that is no white space; '\0' at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  void take(char wanted) {
    if (peek() != wanted) throw NoJson();
    ++at_;
  }

  char next() {
    if (at_ >= text_.size()) throw NoJson();
    return text_[at_++];
  }

  std::string string() {
    take('"');
    std::string value;
    for (char c = next(); c != '"'; c = next()) {
      if (c != '\\') value += c;
      else escaped(value);
    }
    return value;
  }

  void escaped(std::string& value) {
    static const std::string marks = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
    const char mark = next();
    if (mark == 'u') return append_utf8(value, code_point());
    const auto found = marks.find(mark);
    if (found == std::string::npos) throw NoJson();
    value += meant[found];
  }

  unsigned code_point() {
    unsigned code = hexadecimal();
    const bool first_half = code >= 0xD800 && code < 0xDC00;
    if (first_half && text_.compare(at_, 2, "\\u") == 0) {
      at_ += 2;
      code = 0x10000 + ((code - 0xD800) << 10) + ((hexadecimal() - 0xDC00) & 0x3FF);
    }
    return code;
  }

  unsigned hexadecimal() {
    if (text_.size() - at_ < 4) throw NoJson();
    const std::string digits = text_.substr(at_, 4);
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) throw NoJson();
    at_ += 4;
    return static_cast<unsigned>(std::strtoul(digits.c_str(), nullptr, 16));
  }

  static void append_utf8(std::string& value, unsigned code) {
    const auto add = [&value](unsigned byte) { value += static_cast<char>(byte); };
    if (code < 0x80) return add(code);
    if (code < 0x800) add(0xC0 | code >> 6);
    else if (code < 0x10000) add(0xE0 | code >> 12), add(0x80 | (code >> 6 & 0x3F));
    else add(0xF0 | code >> 18), add(0x80 | (code >> 12 & 0x3F)), add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }

  // Past a value, whatever is in it; brackets are counted, not matched.
  void skip_value() {
    int depth = 0;
    do {
      const char c = peek();
      if (c == '"') {
        string();
      } else if (c == '{' || c == '[') {
        ++depth, ++at_;
      } else if (depth > 0 && (c == '}' || c == ']')) {
        --depth, ++at_;
      } else if (depth > 0 && (c == ',' || c == ':')) {
        ++at_;
      } else {
        skip_word();
      }
    } while (depth > 0);
  }

  void skip_word() {
    const std::size_t began = at_;
    at_ = text_.find_first_of(",:]}[{\" \t\n\r", at_);
    if (at_ == std::string::npos) at_ = text_.size();
    if (at_ == began) throw NoJson();
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

AskedModel asked_model(const std::string& options) {
  try {
    return Scanner(options).model();
  } catch (const NoJson&) {
    AskedModel asked;
    asked.readable = false;
    return asked;
  }
}

}  // namespace dragoman
