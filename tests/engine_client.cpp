// The Triton backend's EngineClient in a process that is no Triton: what tests/engine_client.py calls.
#include "engine_client.hpp"

#include "text.hpp"

namespace {

using Deliver = void (*)(std::uint64_t reply, const char* frame, std::uint64_t size);
using Fail = void (*)(std::uint64_t reply, const char* text, const char* details);
using IsCancelled = int (*)(std::uint64_t reply);

class Client : public dragoman::Observer {
 public:
  Client(const char* supervisor, Deliver deliver, Fail fail, IsCancelled is_cancelled)
      : deliver(deliver), fail(fail), is_cancelled(is_cancelled), engines(supervisor, *this) {}

  void take_series(const dragoman::Frame&) override {}
  void take_metrics(const dragoman::Engine&, const dragoman::Frame&) override { throw 3; }  // it must survive anything
  void take_table(const dragoman::RoutingTable&) override {}
  void log_error(const std::string&) noexcept override { ++errors; }

  const Deliver deliver;
  const Fail fail;
  const IsCancelled is_cancelled;
  std::atomic<std::uint64_t> errors{0};
  dragoman::EngineClient engines;
};

class CalledReply : public dragoman::Reply {
 public:
  CalledReply(const Client& client, std::uint64_t number) : client_(client), number_(number) {}

  void deliver(const dragoman::Frame& frame) override {
    const std::string bytes = frame.encoded();
    client_.deliver(number_, bytes.data(), bytes.size());
  }
  void fail(const dragoman::Failure& failure) override {
    client_.fail(number_, failure.text().c_str(), failure.details().c_str());
  }
  bool is_cancelled() override { return client_.is_cancelled(number_) != 0; }

 private:
  const Client& client_;
  const std::uint64_t number_;
};

Client& client_at(void* handle) { return *static_cast<Client*>(handle); }

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void* client_open(const char* supervisor, Deliver deliver, Fail fail, IsCancelled is_cancelled) {
  return new Client(supervisor, deliver, fail, is_cancelled);
}

EXPORTED int client_wait(void* handle, double timeout_s) {
  return client_at(handle).engines.wait_until_ready(timeout_s) ? 1 : 0;
}

EXPORTED std::uint64_t client_tables(void* handle) { return client_at(handle).engines.tables(); }

EXPORTED std::uint64_t client_errors(void* handle) { return client_at(handle).errors; }

EXPORTED void client_status(void* handle, char* status, std::uint64_t size) {
  const std::string found = client_at(handle).engines.status();
  status[found.copy(status, size - 1)] = '\0';
}

EXPORTED void client_limits(void* handle, std::uint64_t* found) {
  const auto limits = client_at(handle).engines.limits();
  for (const auto value : {limits.max_texts, limits.max_text_bytes, limits.max_request_bytes, limits.max_options_bytes,
                           limits.max_command_bytes}) {
    *found++ = value;
  }
}

EXPORTED void client_submit(void* handle, int kind, const char* model, const char** parts, const std::uint64_t* sizes,
                            int count, std::uint64_t reply) {
  dragoman::Request request{static_cast<dragoman::Kind>(kind), model};
  for (int part = 0; part < count; ++part) request.parts.emplace_back(parts[part], sizes[part]);
  client_at(handle).engines.submit(std::move(request), std::make_unique<CalledReply>(client_at(handle), reply));
}

EXPORTED void client_close(void* handle) { delete static_cast<Client*>(handle); }

EXPORTED int wire_version() { return dragoman::kWireVersion; }

// Returns how many bytes it has; no more than `room` are written.
EXPORTED std::uint64_t json_of(const char* text, std::uint64_t size, char* json, std::uint64_t room) {
  const std::string found = dragoman::json_string(std::string(text, size));
  found.copy(json, room);
  return found.size();
}
