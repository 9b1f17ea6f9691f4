#include "suspects.hpp"

#include <algorithm>

namespace dragoman {
namespace {

// FNV-1a: a collision costs a refusal, and only after engines have died.
constexpr Fingerprint kBasis = 14695981039346656037u, kPrime = 1099511628211u;

Fingerprint mixed(Fingerprint hash, const char* bytes, std::size_t count) {
  for (std::size_t at = 0; at < count; ++at) hash = (hash ^ static_cast<std::uint8_t>(bytes[at])) * kPrime;
  return hash;
}

Fingerprint mixed(Fingerprint hash, const std::string& part) {
  const std::uint64_t size = part.size();
  hash = mixed(hash, reinterpret_cast<const char*>(&size), sizeof size);
  return mixed(hash, part.data(), part.size());
}

// The options without the values that differ between two attempts: a caller sends the time that is left.
std::string lasting(std::string options) {
  for (const std::string name : {"\"timeout_ms\"", "\"request_id\""}) {
    const std::size_t start = options.find(name);
    if (start == std::string::npos) continue;
    options.erase(start, std::min(options.find_first_of(",}", start), options.size()) - start);
  }
  return options;
}

}  // namespace

Fingerprint fingerprint_of(const std::string& bundle, const Frame& request) {
  const char kind = static_cast<char>(request.kind);
  Fingerprint hash = mixed(mixed(kBasis, &kind, 1), bundle);
  for (std::size_t part = kOptionsPart; part < request.parts.size(); ++part) {
    hash = mixed(hash, part == kOptionsPart ? lasting(request.parts[part]) : request.parts[part]);
  }
  return hash;
}

int SuspectTable::add(Fingerprint fingerprint, int deaths, double now_s) {
  forget_old(now_s);
  Entry& entry = entries_[fingerprint];
  entry.deaths = std::max(entry.deaths + 1, deaths);
  entry.last_s = now_s;
  return entry.deaths;
}

bool SuspectTable::is_suspect(Fingerprint fingerprint, double now_s) {
  forget_old(now_s);
  const auto found = entries_.find(fingerprint);
  return found != entries_.end() && found->second.deaths >= kMaxDeaths;
}

void SuspectTable::forget_old(double now_s) {
  if (now_s < next_sweep_s_ && entries_.size() < kMaxEntries) return;
  next_sweep_s_ = now_s + kSweepEvery_s;
  for (auto at = entries_.begin(); at != entries_.end();) {
    at = now_s - at->second.last_s > kRemembered_s ? entries_.erase(at) : std::next(at);
  }
  if (entries_.size() < kMaxEntries) return;
  const auto is_older = [](const auto& one, const auto& other) { return one.second.last_s < other.second.last_s; };
  entries_.erase(std::min_element(entries_.begin(), entries_.end(), is_older));
}

}  // namespace dragoman
