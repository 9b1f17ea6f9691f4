#include "dispatcher.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

namespace dragoman {
namespace {

const char* const kNoSession =
    "there is no such session: it was closed, was idle too long, or was lost with its engine; start again";
const char* const kSuspected =
    "two engines died with this request in hand; it is refused for some minutes, do not send it again";
const char* const kCutShort = "the engine was restarted in the middle of this stream; send it again";
const char* const kCallerGone = "the caller went away";
const char* const kQueueFull = "the queue is full";

// The error of a request whose engine has died, or nothing when it is sent to another one.
std::optional<Failure> failure_after_death(const PendingRequest& pending) {
  if (pending.is_session()) return Failure{code::kSessionLost, kNoSession};
  if (pending.cancelled) return Failure{code::kCancelled, kCallerGone};
  if (pending.deaths >= SuspectTable::kMaxDeaths) return Failure{code::kSuspect, kSuspected};
  if (pending.has_delivered) return Failure{code::kRestarting, kCutShort};
  return std::nullopt;
}

}  // namespace

double monotonic_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void Dispatcher::place(const PendingPointer& pending, const std::string& model) {
  // A session that is open was admitted before the server began to drain.
  const bool is_draining = routes_.table().draining && !pending->is_session();
  if (is_draining) throw RefusedRequest(Failure::going_away());
  pending_.require_room(pending->bytes);
  const EnginePointer engine = route(*pending, model);
  if (!suspects_.empty() && !pending->is_session()) refuse_suspect(*pending);
  refuse_if_full(*pending, engine);
  pending_.add(pending);
  if (engine) {
    give(pending, engine);
  } else {
    pending->held_since_s = monotonic_s();
  }
}

EnginePointer Dispatcher::route(PendingRequest& pending, const std::string& model) {
  if (!pending.is_session()) {
    pending.bundle = routes_.bundle_for(model);
    return routes_.engine(pending.bundle);
  }
  EnginePointer engine = routes_.engine_of_session(pending.frame.parts.at(kSessionPart));
  if (!engine) throw RefusedRequest({code::kSessionLost, kNoSession});
  pending.bundle = engine->bundle;
  return engine;
}

void Dispatcher::refuse_suspect(PendingRequest& pending) {
  pending.fingerprint = fingerprint_of(pending.bundle, pending.frame);
  if (suspects_.is_suspect(*pending.fingerprint, monotonic_s())) throw RefusedRequest({code::kSuspect, kSuspected});
}

// The engine would refuse it too, but only after the decoder step that runs.
void Dispatcher::refuse_if_full(const PendingRequest& pending, const EnginePointer& engine) {
  if (!engine || !pending.is_queued() || !engine->is_full()) return;
  ++engine->refused;
  throw RefusedRequest({code::kOverloaded, kQueueFull, engine->room.retry_after_ms});
}

void Dispatcher::give(const PendingPointer& pending, const EnginePointer& engine) {
  pending->engine = engine;
  ++engine->open;
  if (pending->is_queued()) ++engine->sent;
  engine->send(pending->frame);
}

void Dispatcher::give_held() {
  for (const auto& pending : pending_.held()) {
    if (const auto engine = routes_.engine(pending->bundle)) give(pending, engine);
  }
}

bool Dispatcher::withdraw(const PendingRequest& pending) {
  if (pending.frame.request == 0) return true;  // it was never added
  if (!pending_.find(pending.frame.request)) return false;
  pending_.remove(pending);
  return true;
}

Refused Dispatcher::close() const {
  Refused left;
  for (const auto& pending : pending_.select([](const PendingRequest&) { return true; })) {
    left.emplace_back(pending, Failure::going_away());
  }
  return left;
}

PendingPointer Dispatcher::take(const Frame& frame, bool is_last) {
  PendingPointer pending = pending_.find(frame.request);
  if (!pending) return nullptr;
  pending->has_delivered = true;
  if (frame.kind == Kind::answer && pending->fingerprint) suspects_.clear(*pending->fingerprint);
  if (is_last) pending_.remove(*pending);
  return pending;
}

void Dispatcher::take_room(Engine& engine, const QueueRoom& room) {
  engine.room = room;
  if (engine.refused == 0) return;
  std::string count;
  append_number(count, engine.refused);
  engine.refused = 0;
  engine.send({Kind::refused, 0, {count}});  // its metrics count them
}

Refused Dispatcher::lose(const EnginePointer& engine) {
  Refused refused;
  routes_.forget(engine);
  const auto in_hand = pending_.select([&engine](const PendingRequest& pending) { return pending.engine == engine; });
  count_deaths(in_hand);
  for (const auto& pending : in_hand) {
    if (auto failure = failure_after_death(*pending)) {
      refused.emplace_back(pending, std::move(*failure));
      pending_.remove(*pending);
    } else {
      pending->engine = nullptr;
      pending->held_since_s = monotonic_s();
    }
  }
  give_held();
  return refused;
}

// One death counts once for equal requests, and for each of them also with those of earlier attempts.
void Dispatcher::count_deaths(const std::vector<PendingPointer>& in_hand) {
  std::map<Fingerprint, int> deaths;
  for (const auto& pending : in_hand) {
    ++pending->deaths;
    if (pending->is_session()) continue;
    pending->fingerprint = fingerprint_of(pending->bundle, pending->frame);
    int& most = deaths[*pending->fingerprint];
    most = std::max(most, pending->deaths);
  }
  for (auto& [fingerprint, count] : deaths) count = suspects_.add(fingerprint, count, monotonic_s());
  for (const auto& pending : in_hand) {
    if (pending->fingerprint) pending->deaths = deaths[*pending->fingerprint];
  }
}

Refused Dispatcher::refuse_held(double now_s) {
  Refused refused;
  const RoutingTable& table = routes_.table();
  const std::string hold_s = std::to_string(std::lround(table.hold_s));
  for (const auto& pending : pending_.held()) {
    if (table.draining) {
      refused.emplace_back(pending, Failure::going_away());
    } else if (now_s - pending->held_since_s > table.hold_s) {
      refused.emplace_back(pending, Failure{code::kRestarting, "the engine was not back within " + hold_s + " s"});
    }
  }
  for (const auto& each : refused) pending_.remove(*each.first);
  return refused;
}

std::vector<PendingPointer> Dispatcher::not_cancelled() const {
  return pending_.select([](const PendingRequest& pending) { return !pending.cancelled; });
}

Refused Dispatcher::cancel(const PendingPointer& pending) {
  pending->cancelled = true;
  if (pending->engine) {
    pending->engine->send({Kind::cancel, pending->frame.request, {}});
    return {};
  }
  Refused refused{{pending, Failure{code::kCancelled, kCallerGone}}};
  pending_.remove(*pending);
  return refused;
}

}  // namespace dragoman
