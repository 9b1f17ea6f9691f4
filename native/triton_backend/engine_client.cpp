#include "engine_client.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>

namespace dragoman {
namespace {

const std::string kName = "triton";  // dragoman.serving.metrics.PUBLISHED_BY
constexpr std::size_t kMaxPendingRequests = 8192;
constexpr std::size_t kMaxPendingBytes = kMaxFrameBytes / 2;  // so that they fit into the backlog of any engine
constexpr std::uint64_t kRetryAfter_ms = 1000;
constexpr char kNoDetails = '-';
constexpr double kTick_s = 0.02;
constexpr int kTick_ms = 20, kIdleTick_ms = 50;
constexpr int kMaxEvents = 16;

const char* const kNoSession = "there is no such session: it was closed, was idle too long, or was lost with its engine; start again";
const char* const kGoingAway = "this server is going away; another may answer";
const char* const kSuspected = "two engines died with this request in hand; it is refused for some minutes, do not send it again";

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

}  // namespace

EngineClient::EngineClient(const std::string& supervisor_socket, Observer& observer)
    : observer_(observer),
      supervisor_(supervisor_socket),
      poll_(::epoll_create1(EPOLL_CLOEXEC)),
      wakeup_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  supervisor_.send({Kind::hello, 0, {kName}});
  watch(EPOLL_CTL_ADD, supervisor_.descriptor(), EPOLLIN, nullptr);
  watch(EPOLL_CTL_ADD, wakeup_fd_, EPOLLIN, nullptr);
  thread_ = std::thread(&EngineClient::run, this);
}

EngineClient::~EngineClient() {
  closing_ = true;
  const std::uint64_t one = 1;
  if (::write(wakeup_fd_, &one, sizeof one) < 0) {
    // the thread sees `closing_` at its next tick
  }
  thread_.join();
  Refused left;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    for (auto& [number, pending] : pending_) left.emplace_back(pending, Failure{code::kDraining, kGoingAway});
    pending_.clear();
  }
  refuse(left);
  ::close(poll_);
  ::close(wakeup_fd_);
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
  } catch (const std::exception& error) {  // most likely no memory; it is answered here unless it has been already
    observer_.log_error(error.what());
    bool is_open = pending->frame.request == 0;
    {
      const std::lock_guard<std::mutex> lock(guard_);
      if (find(pending->frame.request)) {
        remove(*pending);
        is_open = true;
      }
    }
    if (is_open) pending->reply->fail(Failure::internal());
  }
}

void EngineClient::place(const PendingPointer& pending, const std::string& model) {
  // A session that is open was admitted before the server began to drain.
  if (closing_ || (routes_.table().draining && !pending->is_session())) throw RefusedRequest({code::kDraining, kGoingAway});
  if (pending_.size() >= kMaxPendingRequests || pending_bytes_ + pending->bytes > kMaxPendingBytes) {
    const std::string open = std::to_string(pending_.size()) + " requests of " + std::to_string(pending_bytes_) + " bytes";
    throw RefusedRequest({code::kOverloaded, "too much is waiting for an answer (" + open + ")", kRetryAfter_ms});
  }
  const EnginePointer engine = route(*pending, model);
  if (!suspects_.empty() && !pending->is_session()) refuse_suspect(*pending);
  add(pending);
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

void EngineClient::add(const PendingPointer& pending) {
  pending->frame.request = ++last_number_;
  pending_[pending->frame.request] = pending;
  pending_bytes_ += pending->bytes;
}

void EngineClient::remove(const PendingRequest& pending) {
  if (pending.engine) --pending.engine->open;
  pending_bytes_ -= pending.bytes;
  pending_.erase(pending.frame.request);
}

void EngineClient::give(const PendingPointer& pending, const EnginePointer& engine) {
  pending->engine = engine;
  ++engine->open;
  send(*engine, pending->frame);
}

void EngineClient::give_held() {
  for (const auto& [number, pending] : pending_) {
    if (pending->engine) continue;
    if (const auto engine = routes_.engine(pending->bundle)) give(pending, engine);
  }
}

PendingPointer EngineClient::find(std::uint64_t number) {
  const auto found = pending_.find(number);
  return found == pending_.end() ? nullptr : found->second;
}

void EngineClient::send(Engine& engine, const Frame& frame) {
  try {
    engine.channel.send(frame);
  } catch (const ChannelClosed&) {
    // the reading thread sees the same, and deals with everything that was sent there
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
      observer_.log_error("out of memory");
    }
  } catch (...) {
    observer_.log_error("an unknown exception");
  }
  return false;
}

void EngineClient::run() {
  while (!closing_) {
    if (guarded("the engine client failed", [this] { turn(); })) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(kTick_ms));  // what failed may do so again at once
  }
}

void EngineClient::turn() {
  bool is_waiting = false;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    is_waiting = !pending_.empty();
  }
  epoll_event events[kMaxEvents];
  const int count = ::epoll_wait(poll_, events, kMaxEvents, is_waiting ? kTick_ms : kIdleTick_ms);
  bool from_supervisor = false;
  std::vector<std::pair<EnginePointer, std::uint32_t>> from_engines;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    for (int at = 0; at < count; ++at) {
      from_supervisor |= events[at].data.ptr == nullptr;
      for (const auto& engine : routes_.all()) {
        if (events[at].data.ptr == engine.get()) from_engines.emplace_back(engine, std::uint32_t{events[at].events});
      }
    }
  }
  for (const auto& [engine, what] : from_engines) serve_engine(engine, what);
  if (from_supervisor) read_supervisor();
  watch_backlogs();
  if (const double now_s = monotonic_s(); now_s >= next_tick_s_) {
    next_tick_s_ = now_s + kTick_s;
    look_after_held(now_s);
    look_for_cancelled();
  }
}

void EngineClient::read_supervisor() {
  std::vector<Frame> frames;
  try {
    supervisor_.receive(frames);
  } catch (const ChannelClosed&) {
    watch(EPOLL_CTL_DEL, supervisor_.descriptor(), 0, nullptr);  // it died; the server was started to end with it
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
    watch(EPOLL_CTL_ADD, engine->channel.descriptor(), EPOLLIN, engine.get());
    send(*engine, {Kind::hello, 0, {kName}});
  }
  give_held();
  ++tables_;
  ready_ = ready_ || routes_.table().is_complete();
  ready_changed_.notify_all();
}

void EngineClient::serve_engine(const EnginePointer& engine, std::uint32_t events) {
  std::vector<Frame> frames;
  bool is_lost = false;
  try {
    if (events & EPOLLOUT) engine->channel.flush();
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) engine->channel.receive(frames);
  } catch (const ChannelClosed&) {
    is_lost = true;
  } catch (const std::exception& error) {  // it can't be read on from somewhere in the middle
    observer_.log_error(std::string("an engine's frames can't be read: ") + error.what());
    is_lost = true;
  }
  for (const auto& frame : frames) guarded("an engine's frame can't be used", [&] { take(*engine, frame); });
  if (is_lost) lose(engine);
}

void EngineClient::take(const Engine& engine, const Frame& frame) {
  switch (frame.kind) {
    case Kind::metrics:
      return observer_.take_metrics(engine, frame);
    case Kind::chunk:
    case Kind::answer:
    case Kind::error:
      break;
    default:
      return;
  }
  PendingPointer pending;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    pending = find(frame.request);
    if (!pending) return;
    pending->has_delivered = true;
    if (frame.kind == Kind::answer && pending->fingerprint) suspects_.clear(*pending->fingerprint);
    if (frame.kind != Kind::chunk) remove(*pending);
  }
  finish(pending, frame);
}

void EngineClient::finish(const PendingPointer& pending, const Frame& frame) {
  if (frame.kind == Kind::error) {
    pending->reply->fail(frame.parts.size() == 2 ? Failure::from(frame) : Failure::internal());
  } else {
    pending->reply->deliver(frame);
  }
}

void EngineClient::lose(const EnginePointer& engine) {
  watch(EPOLL_CTL_DEL, engine->channel.descriptor(), 0, nullptr);
  Refused refused;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    routes_.forget(engine);
    std::map<Fingerprint, int> deaths;  // of equal requests one is counted
    std::vector<PendingPointer> in_hand;
    for (const auto& [number, pending] : pending_) {
      if (pending->engine == engine) in_hand.push_back(pending);
    }
    for (const auto& pending : in_hand) {
      ++pending->deaths;
      if (!pending->is_session()) {
        pending->fingerprint = fingerprint_of(pending->bundle, pending->frame);
        deaths[*pending->fingerprint] = std::max(deaths[*pending->fingerprint], pending->deaths);
      }
    }
    for (auto& [fingerprint, count] : deaths) count = suspects_.add(fingerprint, count, monotonic_s());
    for (const auto& pending : in_hand) {
      if (auto failure = after_death(*pending, pending->fingerprint ? deaths[*pending->fingerprint] : 0)) {
        remove(*pending);
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

// What its caller is told, or nothing when it is sent to another engine.
std::optional<Failure> EngineClient::after_death(PendingRequest& pending, int deaths) {
  if (pending.is_session()) return Failure{code::kSessionLost, kNoSession};
  if (pending.cancelled) return Failure{code::kCancelled, "the caller went away"};
  if (deaths >= SuspectTable::kMaxDeaths) return Failure{code::kSuspect, kSuspected};
  if (pending.has_delivered) return Failure{code::kRestarting, "the engine was restarted in the middle of this stream; send it again"};
  return std::nullopt;
}

void EngineClient::watch(int operation, int descriptor, std::uint32_t events, Engine* engine) const {
  epoll_event event{};
  event.events = events;
  event.data.ptr = engine;
  ::epoll_ctl(poll_, operation, descriptor, &event);
}

void EngineClient::watch_backlogs() {
  const std::lock_guard<std::mutex> lock(guard_);
  for (const auto& engine : routes_.all()) {
    if (engine->writing == engine->channel.has_backlog()) continue;
    engine->writing = !engine->writing;
    watch(EPOLL_CTL_MOD, engine->channel.descriptor(), engine->writing ? EPOLLIN | EPOLLOUT : EPOLLIN, engine.get());
  }
}

// Nobody waits for ever; and while the server drains no engine is started again.
void EngineClient::look_after_held(double now_s) {
  Refused refused;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    const RoutingTable& table = routes_.table();
    const std::string late = "the engine was not back within " + std::to_string(static_cast<int>(table.hold_s + 0.5)) + " s";
    for (const auto& [number, pending] : pending_) {
      if (pending->engine) continue;
      if (table.draining) {
        refused.emplace_back(pending, Failure{code::kDraining, kGoingAway});
      } else if (now_s - pending->held_since_s > table.hold_s) {
        refused.emplace_back(pending, Failure{code::kRestarting, late});
      }
    }
    for (const auto& each : refused) remove(*each.first);
  }
  refuse(refused);
}

// Replies are asked by this thread only, which also is the only one that ends them: none is asked after its last response.
void EngineClient::look_for_cancelled() {
  std::vector<PendingPointer> open;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    for (const auto& [number, pending] : pending_) {
      if (!pending->cancelled) open.push_back(pending);
    }
  }
  Refused refused;
  for (const auto& pending : open) {
    if (!pending->reply->is_cancelled()) continue;
    const std::lock_guard<std::mutex> lock(guard_);
    pending->cancelled = true;
    if (pending->engine) {
      send(*pending->engine, {Kind::cancel, pending->frame.request, {}});
    } else {
      remove(*pending);
      refused.emplace_back(pending, Failure{code::kCancelled, "the caller went away"});
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
