#include "engine_client.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>

namespace dragoman {
namespace {

const std::string kName = "triton";  // dragoman.serving.metrics.PUBLISHED_BY
constexpr char kNoDetails = '-';
constexpr double kTick_s = 0.02;
constexpr int kTick_ms = 20, kIdleTick_ms = 50;
// Triton 2.51 may still be handling a cancellation when the call is answered, and then uses what it has freed. The answer
// to a cancelled call is not waited for, so it comes later (docs/operations.md has what was measured).
constexpr double kCancelledGrace_s = 0.05;

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
  refuse(dispatcher_.close());
}

bool EngineClient::wait_until_ready(double timeout_s) {
  std::unique_lock<std::mutex> lock(guard_);
  return ready_changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), [this] { return ready_; });
}

Limits EngineClient::limits() {
  const std::lock_guard<std::mutex> lock(guard_);
  return dispatcher_.table().limits;
}

std::string EngineClient::status() {
  const std::lock_guard<std::mutex> lock(guard_);
  return dispatcher_.table().status;
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
    if (closing_) throw RefusedRequest(Failure::going_away());
    dispatcher_.place(pending, model);
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
  bool is_open = false;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    is_open = dispatcher_.withdraw(*pending);
  }
  if (is_open) pending->reply->fail(Failure::internal());
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
    is_idle = dispatcher_.empty();
  }
  const auto ready = poller_.wait(is_idle ? kIdleTick_ms : kTick_ms);
  std::vector<EnginePointer> engines;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    engines = dispatcher_.engines();
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
    refuse_held(now_s);
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
  for (const auto& engine : dispatcher_.update(std::move(table))) {
    poller_.add(engine->channel.descriptor(), engine.get());
    engine->send({Kind::hello, 0, {kName}});
  }
  dispatcher_.give_held();
  ++tables_;
  ready_ = ready_ || dispatcher_.table().is_complete();
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
  dispatcher_.take_room(engine, room);
}

void EngineClient::take(Engine& engine, const Frame& frame) {
  if (frame.kind == Kind::metrics) return observer_.take_metrics(engine, frame);
  if (frame.kind == Kind::room) return take_room(engine, frame);
  const bool is_last = frame.kind == Kind::answer || frame.kind == Kind::error;
  if (!is_last && frame.kind != Kind::chunk) return;
  PendingPointer pending;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    pending = dispatcher_.take(frame, is_last);
  }
  if (!pending) return;
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
    refused = dispatcher_.lose(engine);
  }
  refuse(refused);
}

void EngineClient::watch_backlogs() {
  const std::lock_guard<std::mutex> lock(guard_);
  for (const auto& engine : dispatcher_.engines()) {
    if (engine->writing == engine->channel.has_backlog()) continue;
    engine->writing = !engine->writing;
    poller_.watch_writing(engine->channel.descriptor(), engine.get(), engine->writing);
  }
}

void EngineClient::refuse_held(double now_s) {
  Refused refused;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    refused = dispatcher_.refuse_held(now_s);
  }
  refuse(refused);
}

// Only this thread queries replies, and only this thread ends them: none is queried after its last response.
void EngineClient::look_for_cancelled() {
  std::vector<PendingPointer> open;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    open = dispatcher_.not_cancelled();
  }
  for (const auto& pending : open) {
    if (!pending->reply->is_cancelled()) continue;
    Refused refused;
    {
      const std::lock_guard<std::mutex> lock(guard_);
      refused = dispatcher_.cancel(pending);
    }
    refuse(refused);
  }
}

void EngineClient::refuse(const Refused& refused) noexcept {
  for (const auto& [pending, failure] : refused) {
    guarded("a request can't be refused", [&reply = *pending->reply, &why = failure] { reply.fail(why); });
  }
}

}  // namespace dragoman
