#include "pending.hpp"

namespace dragoman {
namespace {

constexpr std::uint64_t kRetryAfter_ms = 1000;

}  // namespace

void PendingRequests::require_room(std::size_t bytes) const {
  if (requests_.size() < kMaxRequests && bytes_ + bytes <= kMaxBytes) return;
  const std::string open = std::to_string(requests_.size()) + " requests of " + std::to_string(bytes_) + " bytes";
  throw RefusedRequest({code::kOverloaded, "too much is waiting for an answer (" + open + ")", kRetryAfter_ms});
}

void PendingRequests::add(const PendingPointer& pending) {
  pending->frame.request = ++last_number_;
  requests_[pending->frame.request] = pending;
  bytes_ += pending->bytes;
}

void PendingRequests::remove(const PendingRequest& pending) {
  if (pending.engine) --pending.engine->open;
  bytes_ -= pending.bytes;
  requests_.erase(pending.frame.request);
}

PendingPointer PendingRequests::find(std::uint64_t number) const {
  const auto found = requests_.find(number);
  return found == requests_.end() ? nullptr : found->second;
}

std::vector<PendingPointer> PendingRequests::held() const {
  return select([](const PendingRequest& pending) { return !pending.engine; });
}

}  // namespace dragoman
