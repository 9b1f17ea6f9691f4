#include "engine_client.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>

namespace dragoman {
namespace {

const std::string kName = "triton";  // dragoman.serving.metrics.PUBLISHED_BY
constexpr char kNoDetails = '-';
constexpr double kTick_s = 0.02;
constexpr int kTick_ms = 20, kIdleTick_ms = 50;
// Triton 2.51 may still be handling a cancellation when the call is answered, and then uses what it has freed. The answer
// to a cancelled call is not waited for, so it comes later (docs/operations.md has what was measured).
constexpr double kCancelledGrace_s = 0.05;

const char* const kNoSession =
    "there is no such session: it was closed, was idle too long, or was lost with its engine; start again";
const char* const kGoingAway = "this server is going away; another may answer";
const char* const kSuspected =
    "two engines died with this request in hand; it is refused for some minutes, do not send it again";
const char* const kCutShort = "the engine was restarted in the middle of this stream; send it again";
const char* const kCallerGone = "the caller went away";
const char* const kQueueFull = "the queue is full";

double monotonic_s() {  // the clock of Python's time.monotonic
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

PendingPointer pending_of(Request request, std::unique_ptr<Reply> reply) {
  std::string arrival;
  append_number(arrival, monotonic_s());
  if (!request.wants_details) arrival += kNoDetails;
  std::vector<std::string> parts;
  parts.reserve(1 + request.parts.size());
  parts.push_back(std::move(arrival));
  std::move(request.parts.begin(), request.parts.end(), std::back_inserter(parts));
  auto pending = std::make_shared<PendingRequest>();
  pending->frame = {request.kind, 0, std::move(parts)};
  pending->reply = std::move(reply);
  for (const auto& part : pending->frame.parts) pending->bytes += part.size();
  return pending;
}

void send(Engine& engine, const Frame& frame) {
  try {
    engine.channel.send(frame);
  } catch (const ChannelClosed&) {
    // the reading thread sees the same, and deals with everything that was sent there
  }
}

// The error of a request whose engine has died, or nothing when it is sent to another one.
std::optional<Failure> failure_after_death(const PendingRequest& pending) {
  if (pending.is_session()) return Failure{code::kSessionLost, kNoSession};
  if (pending.cancelled) return Failure{code::kCancelled, kCallerGone};
  if (pending.deaths >= SuspectTable::kMaxDeaths) return Failure{code::kSuspect, kSuspected};
  if (pending.has_delivered) return Failure{code::kRestarting, kCutShort};
  return std::nullopt;
}

}  // namespace

EngineClient::EngineClient(const std::string& supervisor_socket, Observer& observer)
    : observer_(observer), supervisor_(supervisor_socket) {
  supervisor_.send({Kind::hello, 0, {kName}});
  poller_.add(supervisor_.descriptor(), &supervisor_);
  thread_ = std::thread(&EngineClient::run, this);
}

EngineClient::~EngineClient() {
  closing_ = true;
  poller_.wake();
  thread_.join();
  Refused left;
  for (const auto& pending : pending_.select([](const PendingRequest&) { return true; })) {
    left.emplace_back(pending, Failure{code::kDraining, kGoingAway});
  }
  refuse(left);
}

bool EngineClient::wait_until_ready(double timeout_s) {
  std::unique_lock<std::mutex> lock(guard_);
  return ready_changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), [this] { return ready_; });
}

Limits EngineClient::limits() {
  const std::lock_guard<std::mutex> lock(guard_);
  return routes_.table().limits;
}

std::string EngineClient::status() {
  const std::lock_guard<std::mutex> lock(guard_);
  return routes_.table().status;
}

std::uint64_t EngineClient::tables() {
  const std::lock_guard<std::mutex> lock(guard_);
  return tables_;
}

// Requests come in, from Triton's threads.

void EngineClient::submit(Request request, std::unique_ptr<Reply> reply) {
  const std::string model = std::move(request.bundle);
  const auto pending = pending_of(std::move(request), std::move(reply));
  try {
    const std::lock_guard<std::mutex> lock(guard_);
    place(pending, model);
  } catch (const RefusedRequest& refused) {
    pending->reply->fail(refused.failure);
  } catch (const std::exception& error) {  // most likely no memory
    observer_.log_error(error.what());
    refuse_unless_answered(pending);
  } catch (...) {
    observer_.log_error("an unknown exception while a request was accepted");
    refuse_unless_answered(pending);
  }
}

void EngineClient::refuse_unless_answered(const PendingPointer& pending) {
  bool is_open = pending->frame.request == 0;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    if (pending_.find(pending->frame.request)) {
      pending_.remove(*pending);
      is_open = true;
    }
  }
  if (is_open) pending->reply->fail(Failure::internal());
}

void EngineClient::place(const PendingPointer& pending, const std::string& model) {
  // A session that is open was admitted before the server began to drain.
  const bool is_draining = routes_.table().draining && !pending->is_session();
  if (closing_ || is_draining) throw RefusedRequest({code::kDraining, kGoingAway});
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

EnginePointer EngineClient::route(PendingRequest& pending, const std::string& model) {
  if (!pending.is_session()) {
    pending.bundle = routes_.bundle_for(model);
    return routes_.engine(pending.bundle);
  }
  const EnginePointer engine = routes_.engine_of_session(pending.frame.parts.at(kSessionPart));
  if (!engine) throw RefusedRequest({code::kSessionLost, kNoSession});
  pending.bundle = engine->bundle;
  return engine;
}

void EngineClient::refuse_suspect(PendingRequest& pending) {
  pending.fingerprint = fingerprint_of(pending.bundle, pending.frame);
  if (suspects_.is_suspect(*pending.fingerprint, monotonic_s())) throw RefusedRequest({code::kSuspect, kSuspected});
}

// The engine would refuse it too, but only after the decoder step that runs.
void EngineClient::refuse_if_full(const PendingRequest& pending, const EnginePointer& engine) {
  if (!engine || !pending.is_queued() || !engine->is_full()) return;
  ++engine->refused;
  throw RefusedRequest({code::kOverloaded, kQueueFull, engine->room.retry_after_ms});
}

void EngineClient::give(const PendingPointer& pending, const EnginePointer& engine) {
  pending->engine = engine;
  ++engine->open;
  if (pending->is_queued()) ++engine->sent;
  send(*engine, pending->frame);
}

void EngineClient::give_held() {
  for (const auto& pending : pending_.held()) {
    if (const auto engine = routes_.engine(pending->bundle)) give(pending, engine);
  }
}

// The client's own thread.

template <typename Body>
bool EngineClient::guarded(const char* what, const Body& body) noexcept {
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    try {
      observer_.log_error(std::string(what) + ": " + error.what());
    } catch (...) {
      observer_.log_error(what);  // no memory for more
    }
  } catch (...) {
    observer_.log_error(what);
  }
  return false;
}

void EngineClient::run() {
  while (!closing_) {
    if (guarded("the engine client failed", [this] { turn(); })) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(kTick_ms));  // what failed may do so again at once
  }
  deliver_late(monotonic_s());
}

void EngineClient::turn() {
  bool is_idle = false;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    is_idle = pending_.empty();
  }
  const auto ready = poller_.wait(is_idle ? kIdleTick_ms : kTick_ms);
  std::vector<EnginePointer> engines;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    engines = routes_.all();
  }
  bool from_supervisor = false;
  for (const auto& each : ready) {  // engines first: a death counts before the table that has its successor
    from_supervisor |= each.owner == &supervisor_;
    for (const auto& engine : engines) {
      if (each.owner == engine.get()) serve_engine(engine, each);
    }
  }
  if (from_supervisor) read_supervisor();
  watch_backlogs();
  if (const double now_s = monotonic_s(); now_s >= next_tick_s_) {
    next_tick_s_ = now_s + kTick_s;
    deliver_late(now_s);
    look_after_held(now_s);
    look_for_cancelled();
  }
}

void EngineClient::read_supervisor() {
  std::vector<Frame> frames;
  try {
    supervisor_.receive(frames);
  } catch (const ChannelClosed&) {
    poller_.remove(supervisor_.descriptor());  // it died; the server was started to end with it
  }
  for (const auto& frame : frames) {
    if (frame.kind == Kind::series) guarded("metrics can't be declared", [&] { observer_.take_series(frame); });
    if (frame.kind == Kind::routes) take_table(RoutingTable::from(frame));
  }
}

void EngineClient::take_table(RoutingTable table) {
  guarded("restarts can't be published", [&] { observer_.take_table(table); });
  const std::lock_guard<std::mutex> lock(guard_);
  for (const auto& engine : routes_.update(std::move(table))) {
    poller_.add(engine->channel.descriptor(), engine.get());
    send(*engine, {Kind::hello, 0, {kName}});
  }
  give_held();
  ++tables_;
  ready_ = ready_ || routes_.table().is_complete();
  ready_changed_.notify_all();
}

void EngineClient::serve_engine(const EnginePointer& engine, const Poller::Ready& ready) {
  std::vector<Frame> frames;
  bool is_lost = false;
  try {
    if (ready.can_write) engine->channel.flush();
    if (ready.can_read) engine->channel.receive(frames);
  } catch (const ChannelClosed&) {
    is_lost = true;
  } catch (const std::exception& error) {  // it can't be read on from somewhere in the middle
    observer_.log_error(std::string("an engine's frames can't be read: ") + error.what());
    is_lost = true;
  }
  for (const auto& frame : frames) guarded("an engine's frame can't be used", [&] { take(*engine, frame); });
  if (is_lost) lose(engine);
}

void EngineClient::take_room(Engine& engine, const Frame& frame) {
  QueueRoom room;
  read_numbers(frame.parts.at(0), {&room.read, &room.places, &room.retry_after_ms});
  const std::lock_guard<std::mutex> lock(guard_);
  engine.room = room;
  if (engine.refused == 0) return;
  std::string count;
  append_number(count, engine.refused);
  engine.refused = 0;
  send(engine, {Kind::refused, 0, {count}});  // its metrics count them
}

void EngineClient::take(Engine& engine, const Frame& frame) {
  if (frame.kind == Kind::metrics) return observer_.take_metrics(engine, frame);
  if (frame.kind == Kind::room) return take_room(engine, frame);
  const bool is_last = frame.kind == Kind::answer || frame.kind == Kind::error;
  if (!is_last && frame.kind != Kind::chunk) return;
  PendingPointer pending;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    pending = pending_.find(frame.request);
    if (!pending) return;
    pending->has_delivered = true;
    if (frame.kind == Kind::answer && pending->fingerprint) suspects_.clear(*pending->fingerprint);
    if (is_last) pending_.remove(*pending);
  }
  if (is_last && pending->reply->is_cancelled()) {
    late_.push_back({monotonic_s() + kCancelledGrace_s, pending, frame});
  } else {
    deliver(pending, frame);
  }
}

void EngineClient::deliver(const PendingPointer& pending, const Frame& frame) {
  if (frame.kind != Kind::error) return pending->reply->deliver(frame);
  pending->reply->fail(frame.parts.size() == 2 ? Failure::from(frame) : Failure::internal());
}

void EngineClient::deliver_late(double now_s) noexcept {
  while (!late_.empty() && (late_.front().due_s <= now_s || closing_)) {
    const LateAnswer late = std::move(late_.front());
    late_.pop_front();
    guarded("a cancelled request can't be ended", [&] { deliver(late.pending, late.frame); });
  }
}

void EngineClient::lose(const EnginePointer& engine) {
  poller_.remove(engine->channel.descriptor());
  Refused refused;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    routes_.forget(engine);
    const auto in_hand = pending_.select([&engine](const PendingRequest& pending) { return pending.engine == engine; });
    count_deaths(in_hand);
    for (const auto& pending : in_hand) {
      if (auto failure = failure_after_death(*pending)) {
        pending_.remove(*pending);
        refused.emplace_back(pending, std::move(*failure));
      } else {
        pending->engine = nullptr;
        pending->held_since_s = monotonic_s();
      }
    }
    give_held();
  }
  refuse(refused);
}

// One death counts once for equal requests, and for each of them also with those of earlier attempts.
void EngineClient::count_deaths(const std::vector<PendingPointer>& in_hand) {
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

void EngineClient::watch_backlogs() {
  const std::lock_guard<std::mutex> lock(guard_);
  for (const auto& engine : routes_.all()) {
    if (engine->writing == engine->channel.has_backlog()) continue;
    engine->writing = !engine->writing;
    poller_.watch_writing(engine->channel.descriptor(), engine.get(), engine->writing);
  }
}

// No request waits for ever; and while the server drains no engine is started again.
void EngineClient::look_after_held(double now_s) {
  Refused refused;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    const RoutingTable& table = routes_.table();
    const std::string hold_s = std::to_string(static_cast<int>(table.hold_s + 0.5));
    for (const auto& pending : pending_.held()) {
      if (table.draining) {
        refused.emplace_back(pending, Failure{code::kDraining, kGoingAway});
      } else if (now_s - pending->held_since_s > table.hold_s) {
        refused.emplace_back(pending, Failure{code::kRestarting, "the engine was not back within " + hold_s + " s"});
      }
    }
    for (const auto& each : refused) pending_.remove(*each.first);
  }
  refuse(refused);
}

// Only this thread queries replies, and only this thread ends them: none is queried after its last response.
void EngineClient::look_for_cancelled() {
  std::vector<PendingPointer> open;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    open = pending_.select([](const PendingRequest& pending) { return !pending.cancelled; });
  }
  Refused refused;
  for (const auto& pending : open) {
    if (!pending->reply->is_cancelled()) continue;
    const std::lock_guard<std::mutex> lock(guard_);
    pending->cancelled = true;
    if (pending->engine) {
      send(*pending->engine, {Kind::cancel, pending->frame.request, {}});
    } else {
      pending_.remove(*pending);
      refused.emplace_back(pending, Failure{code::kCancelled, kCallerGone});
    }
  }
  refuse(refused);
}

void EngineClient::refuse(const Refused& refused) noexcept {
  for (const auto& [pending, failure] : refused) {
    guarded("a request can't be refused", [&reply = *pending->reply, &why = failure] { reply.fail(why); });
  }
}

}  // namespace dragoman
