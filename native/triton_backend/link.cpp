#include "link.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <sstream>

namespace dragoman {
namespace {

constexpr std::size_t kMostPending = 4096;
constexpr std::size_t kMostRequestBytes = std::size_t{64} << 20;
constexpr char kNoDetails = '-';
constexpr double kTick_s = 0.02;
constexpr int kTick_ms = 20, kIdleTick_ms = 50;
constexpr int kEvents = 16;

const char* const kNoSession = "there is no such session: it was closed, was idle too long, or was lost with its engine; start again";
const char* const kInterrupted = "the engine was restarted while it worked on this; send it again";

}  // namespace

double monotonic_s() {  // the clock of Python's time.monotonic
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Link::Link(const std::string& supervisor, std::string name, Listener* listener)
    : name_(std::move(name)),
      listener_(listener),
      supervisor_(supervisor),
      poll_(::epoll_create1(EPOLL_CLOEXEC)),
      bell_(::eventfd(0, EFD_CLOEXEC)) {
  supervisor_.send({Kind::hello, 0, {name_, std::to_string(::getpid())}});
  watch(EPOLL_CTL_ADD, supervisor_.descriptor(), EPOLLIN, nullptr);
  watch(EPOLL_CTL_ADD, bell_, EPOLLIN, nullptr);
  thread_ = std::thread(&Link::run, this);
}

Link::~Link() {
  closing_ = true;
  const std::uint64_t one = 1;
  if (::write(bell_, &one, sizeof one) < 0) {
    // the thread looks up at its next tick
  }
  thread_.join();
  Refused left;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    for (auto& [number, pending] : pending_) left.emplace_back(pending, Failure::say("DRAINING", "this server is going away"));
    pending_.clear();
  }
  refuse(left);
  ::close(poll_);
  ::close(bell_);
}

bool Link::wait_until_routed(double timeout_s) {
  std::unique_lock<std::mutex> lock(guard_);
  return routed_changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), [this] { return routed_; });
}

std::uint64_t Link::tables() {
  const std::lock_guard<std::mutex> lock(guard_);
  return tables_;
}

// Requests come in.

void Link::submit(Kind kind, std::vector<std::string> parts, std::unique_ptr<Reply> reply, bool bare) {
  auto pending = std::make_shared<Pending>();
  pending->since_s = monotonic_s();
  pending->reply = std::move(reply);
  std::string arrival;
  append_number(arrival, pending->since_s);
  if (bare) arrival += kNoDetails;
  parts.insert(parts.begin(), std::move(arrival));
  pending->frame = {kind, 0, std::move(parts)};
  Failure refusal;
  bool placed = false;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    placed = place(pending, refusal);
  }
  if (!placed) pending->reply->fail(refusal);
}

bool Link::place(const PendingPointer& pending, Failure& refusal) {
  const bool goes_on = pending->frame.kind == Kind::decode;  // a session that is open was admitted
  if (closing_ || (routes_.table().draining && !goes_on)) {
    refusal = Failure::say("DRAINING", "this server is going away; another may answer");
    return false;
  }
  std::size_t size = 0;
  for (const auto& part : pending->frame.parts) size += part.size();
  if (size > kMostRequestBytes) {
    std::ostringstream text;
    text << "the request has " << size << " bytes; a server takes " << kMostRequestBytes << ": send several";
    refusal = Failure::say("INVALID_REQUEST", text.str());
    return false;
  }
  if (pending_.size() >= kMostPending) {
    refusal = Failure::overloaded("too many requests are open (" + std::to_string(kMostPending) + ")", 1000);
    return false;
  }
  EnginePointer engine;
  if (goes_on) {
    engine = routes_.engine_of_session(pending->frame.parts.at(1));
    if (!engine) {
      refusal = Failure::say("SESSION_LOST", kNoSession);
      return false;
    }
    pending->bundle = engine->bundle;
  } else {
    if (!routes_.bundle_for(pending->frame.parts.at(1), pending->bundle, refusal)) return false;
    engine = routes_.engine(pending->bundle);
  }
  pending->frame.request = ++last_number_;
  pending_[pending->frame.request] = pending;
  if (engine) give(pending, engine);
  return true;
}

void Link::give(const PendingPointer& pending, const EnginePointer& engine) {
  pending->engine = engine;
  ++engine->open;
  send(*engine, pending->frame);
}

Link::PendingPointer Link::end(std::uint64_t number) {
  const auto found = pending_.find(number);
  if (found == pending_.end()) return nullptr;
  const PendingPointer pending = found->second;
  pending_.erase(found);
  if (pending->engine) --pending->engine->open;
  return pending;
}

void Link::send(Engine& engine, const Frame& frame) {
  try {
    engine.channel.send(frame);
  } catch (const ChannelClosed&) {
    // the reading thread sees the same, and deals with everything that was sent there
  }
}

// The link's own thread.

void Link::run() {
  double tick_s = monotonic_s();
  while (!closing_) {
    bool waits = false;
    {
      const std::lock_guard<std::mutex> lock(guard_);
      waits = !pending_.empty();
    }
    epoll_event events[kEvents];
    const int count = ::epoll_wait(poll_, events, kEvents, waits ? kTick_ms : kIdleTick_ms);
    bool supervisor_speaks = false;
    std::vector<std::pair<EnginePointer, std::uint32_t>> speaking;
    {
      const std::lock_guard<std::mutex> lock(guard_);
      for (int at = 0; at < count; ++at) {
        supervisor_speaks |= events[at].data.ptr == nullptr;
        for (const auto& engine : routes_.all()) {
          if (events[at].data.ptr == engine.get()) speaking.emplace_back(engine, std::uint32_t{events[at].events});
        }
      }
    }
    if (supervisor_speaks) read_supervisor();
    for (const auto& [engine, what] : speaking) serve_engine(engine, what);
    watch_backlogs();
    if (const double now_s = monotonic_s(); now_s >= tick_s) {
      tick_s = now_s + kTick_s;
      expire_held(now_s);
      look_for_cancelled();
    }
  }
}

void Link::read_supervisor() {
  std::vector<Frame> frames;
  try {
    supervisor_.receive(frames);
  } catch (const ChannelClosed&) {
    watch(EPOLL_CTL_DEL, supervisor_.descriptor(), 0, nullptr);  // it died; the server was started to end with it
  }
  for (const auto& frame : frames) {
    if (frame.kind == Kind::series && listener_) listener_->take_series(frame);
    if (frame.kind == Kind::routes) take_table(RoutingTable::from(frame));
  }
}

void Link::take_table(const RoutingTable& table) {
  if (listener_) listener_->take_table(table);
  const std::lock_guard<std::mutex> lock(guard_);
  for (const auto& engine : routes_.update(table)) {
    watch(EPOLL_CTL_ADD, engine->channel.descriptor(), EPOLLIN, engine.get());
    send(*engine, {Kind::hello, 0, {name_}});
    for (const auto& [number, pending] : pending_) {
      if (!pending->engine && pending->bundle == engine->bundle) give(pending, engine);
    }
  }
  ++tables_;
  routed_ = routed_ || routes_.table().is_complete();
  routed_changed_.notify_all();
}

void Link::serve_engine(const EnginePointer& engine, std::uint32_t events) {
  std::vector<Frame> frames;
  bool lost = false;
  try {
    if (events & EPOLLOUT) engine->channel.flush();
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) engine->channel.receive(frames);
  } catch (const ChannelClosed&) {
    lost = true;
  } catch (const BrokenStream&) {
    lost = true;
  }
  for (const auto& frame : frames) take(*engine, frame);
  if (lost) lose(engine);
}

void Link::take(const Engine& engine, const Frame& frame) {
  if (frame.kind == Kind::metrics) {
    if (listener_) listener_->take_metrics(engine, frame);
    return;
  }
  PendingPointer pending;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    if (frame.kind == Kind::started) {
      const std::string& numbers = frame.parts.at(0);
      for (std::size_t at = 0; at + sizeof(std::uint64_t) <= numbers.size(); at += sizeof(std::uint64_t)) {
        const auto found = pending_.find(number_at<std::uint64_t>(numbers.data() + at));
        if (found != pending_.end()) found->second->started = true;
      }
      return;
    }
    if (frame.kind == Kind::chunk) {
      const auto found = pending_.find(frame.request);
      if (found != pending_.end()) pending = found->second;
    } else {
      pending = end(frame.request);
    }
    if (!pending) return;
    pending->started = true;  // a caller who has heard a part must not hear it again from another engine
  }
  if (frame.kind == Kind::error) {
    pending->reply->fail({frame.parts.at(0), frame.parts.at(1)});
  } else {
    pending->reply->deliver(frame);
  }
}

// What it had begun is refused at once, what only waited there is kept for the next one.
void Link::lose(const EnginePointer& engine) {
  watch(EPOLL_CTL_DEL, engine->channel.descriptor(), 0, nullptr);
  Refused lost;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    routes_.forget(engine);
    for (auto at = pending_.begin(); at != pending_.end();) {
      const PendingPointer pending = at->second;
      const bool is_session = pending->frame.kind == Kind::decode;
      if (pending->engine != engine) {
        ++at;
      } else if (pending->started || pending->held_before || pending->cancelled || is_session) {
        lost.emplace_back(pending, is_session ? Failure::say("SESSION_LOST", kNoSession) : Failure::say("RESTARTING", kInterrupted));
        at = pending_.erase(at);
      } else {
        pending->held_before = true;
        pending->engine = nullptr;
        if (const auto successor = routes_.engine(engine->bundle)) give(pending, successor);
        ++at;
      }
    }
  }
  refuse(lost);
}

void Link::watch(int operation, int descriptor, std::uint32_t events, Engine* engine) const {
  epoll_event event{};
  event.events = events;
  event.data.ptr = engine;
  ::epoll_ctl(poll_, operation, descriptor, &event);
}

void Link::watch_backlogs() {
  const std::lock_guard<std::mutex> lock(guard_);
  for (const auto& engine : routes_.all()) {
    if (engine->writing == engine->channel.has_backlog()) continue;
    engine->writing = !engine->writing;
    watch(EPOLL_CTL_MOD, engine->channel.descriptor(), engine->writing ? EPOLLIN | EPOLLOUT : EPOLLIN, engine.get());
  }
}

void Link::expire_held(double now_s) {
  Refused late;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    const double hold_s = routes_.table().hold_s;
    std::ostringstream text;
    text << "the engine died and was not back within " << static_cast<int>(hold_s + 0.5) << " s";
    for (auto at = pending_.begin(); at != pending_.end();) {
      const bool is_late = !at->second->engine && now_s - at->second->since_s > hold_s;
      if (is_late) late.emplace_back(at->second, Failure::say("RESTARTING", text.str()));
      at = is_late ? pending_.erase(at) : std::next(at);
    }
  }
  refuse(late);
}

// A reply is asked by this thread only, which also is the only one that ends it: nobody is asked after his last word.
void Link::look_for_cancelled() {
  std::vector<PendingPointer> asked;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    for (const auto& [number, pending] : pending_) {
      if (!pending->cancelled) asked.push_back(pending);
    }
  }
  Refused alone;
  for (const auto& pending : asked) {
    if (!pending->reply->is_cancelled()) continue;
    const std::lock_guard<std::mutex> lock(guard_);
    pending->cancelled = true;
    if (pending->engine) {
      send(*pending->engine, {Kind::cancel, pending->frame.request, {}});
    } else {
      pending_.erase(pending->frame.request);
      alone.emplace_back(pending, Failure::say("CANCELLED", "the caller went away"));
    }
  }
  refuse(alone);
}

void Link::refuse(const Refused& refused) {
  for (const auto& [pending, failure] : refused) pending->reply->fail(failure);
}

}  // namespace dragoman
