#include "failure.hpp"

#include <cstdlib>

#include "text.hpp"

namespace dragoman {
namespace {

const std::string kSeparator = ": ";
const std::string kHint = " retry_after_ms=";

}  // namespace

Failure Failure::from(const Frame& frame) {
  Failure failure{frame.parts.at(0), frame.parts.at(1)};
  const std::string& text = frame.parts.at(1);
  if (text.compare(0, failure.code.size(), failure.code) != 0) return failure;
  const std::size_t end = text.find(kSeparator, failure.code.size());
  if (end == std::string::npos) return failure;
  if (text.compare(failure.code.size(), kHint.size(), kHint) == 0) {
    failure.retry_after_ms = std::strtoull(text.c_str() + failure.code.size() + kHint.size(), nullptr, 10);
  }
  failure.message = text.substr(end + kSeparator.size());
  return failure;
}

Failure Failure::internal() { return {code::kInternal, "the server failed at this request; its log has the reason"}; }

Failure Failure::going_away() { return {code::kDraining, "this server is going away; another may answer"}; }

std::string Failure::text() const {
  const std::string hint = retry_after_ms ? kHint + std::to_string(*retry_after_ms) : "";
  return code + hint + kSeparator + valid_utf8(message);
}

std::string Failure::details() const {
  return "{\"wire_version\": " + std::to_string(kWireVersion) + ", \"error\": {\"code\": " + json_string(code) +
         ", \"message\": " + json_string(message) +
         ", \"retry_after_ms\": " + (retry_after_ms ? std::to_string(*retry_after_ms) : "null") + "}}";
}

}  // namespace dragoman
