// An error as it leaves for the caller: a code of the wire contract (dragoman.wire.ErrorCode) and a sentence.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "frames.hpp"

namespace dragoman {

constexpr int kWireVersion = 2;  // dragoman.wire.WIRE_VERSION

namespace code {
constexpr const char* kInvalidRequest = "INVALID_REQUEST";
constexpr const char* kOverloaded = "OVERLOADED";
constexpr const char* kDraining = "DRAINING";
constexpr const char* kRestarting = "RESTARTING";
constexpr const char* kDeadlineExceeded = "DEADLINE_EXCEEDED";
constexpr const char* kCancelled = "CANCELLED";
constexpr const char* kSessionLost = "SESSION_LOST";
constexpr const char* kSuspect = "SUSPECT";
constexpr const char* kInternal = "INTERNAL";
}  // namespace code

struct Failure {
  std::string code;
  std::string message;
  std::optional<std::uint64_t> retry_after_ms{};

  // Of an engine's ERROR frame.
  static Failure from(const Frame& frame);
  static Failure internal();
  static Failure going_away();

  // The message of an error response: `CODE: message`, `OVERLOADED retry_after_ms=250: message`.
  std::string text() const;
  // DETAILS of the last response of a stream.
  std::string details() const;
};

// A request is not taken; `failure` is what its caller is told.
struct RefusedRequest : std::runtime_error {
  explicit RefusedRequest(Failure failure) : std::runtime_error(failure.message), failure(std::move(failure)) {}

  const Failure failure;
};

}  // namespace dragoman
