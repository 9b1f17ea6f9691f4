// An error as it leaves for the caller: a code of the wire contract (dragoman.wire.ErrorCode) and a sentence.
#pragma once

#include <string>
#include <utility>

namespace dragoman {

struct Failure {
  std::string code;
  std::string text;

  static Failure say(const std::string& code, const std::string& message) { return {code, code + ": " + message}; }

  static Failure overloaded(const std::string& message, int retry_after_ms) {
    return {"OVERLOADED", "OVERLOADED retry_after_ms=" + std::to_string(retry_after_ms) + ": " + message};
  }
};

}  // namespace dragoman
