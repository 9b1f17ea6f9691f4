// Requests that were in hand when an engine died: one of them may be what it died of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "frames.hpp"

namespace dragoman {

using Fingerprint = std::uint64_t;

// Of what a request asks: the same for a second attempt, whose time limit and id may differ.
Fingerprint fingerprint_of(const std::string& bundle, const Frame& request);

// Remembers how many engines died with a request in hand, for some minutes; bounded, the oldest are forgotten first.
class SuspectTable {
 public:
  static constexpr int kMaxDeaths = 2;  // a request is refused after so many
  static constexpr std::size_t kMaxEntries = 4096;
  static constexpr double kRemembered_s = 300.0;
  static constexpr double kSweepEvery_s = 1.0;

  bool empty() const { return entries_.empty(); }
  // An engine died with this request in hand, `deaths` of them in this very call; how many that makes.
  int add(Fingerprint fingerprint, int deaths, double now_s);
  bool is_suspect(Fingerprint fingerprint, double now_s);
  // It was answered: it is no longer suspected.
  void clear(Fingerprint fingerprint) { entries_.erase(fingerprint); }

 private:
  struct Entry {
    int deaths = 0;
    double last_s = 0.0;
  };

  void forget_old(double now_s);

  std::map<Fingerprint, Entry> entries_;
  double next_sweep_s_ = 0.0;
};

}  // namespace dragoman
