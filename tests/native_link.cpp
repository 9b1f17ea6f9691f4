// The door's link by itself, for a process that is no Triton: what tests/native_link.py calls.
#include <cstdio>

#include "asked_model.hpp"
#include "link.hpp"

namespace {

using Deliver = void (*)(std::uint64_t reply, const char* frame, std::uint64_t size);
using Fail = void (*)(std::uint64_t reply, const char* code, const char* text);
using IsCancelled = int (*)(std::uint64_t reply);

struct Handle {
  Deliver deliver;
  Fail fail;
  IsCancelled is_cancelled;
  std::unique_ptr<dragoman::Link> link;
};

class CalledReply : public dragoman::Reply {
 public:
  CalledReply(const Handle& handle, std::uint64_t number) : handle_(handle), number_(number) {}

  void deliver(const dragoman::Frame& frame) override {
    const std::string bytes = frame.encoded();
    handle_.deliver(number_, bytes.data(), bytes.size());
  }
  void fail(const dragoman::Failure& failure) override { handle_.fail(number_, failure.code.c_str(), failure.text.c_str()); }
  bool is_cancelled() override { return handle_.is_cancelled(number_) != 0; }

 private:
  const Handle& handle_;
  const std::uint64_t number_;
};

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void* link_open(const char* supervisor, const char* name, Deliver deliver, Fail fail, IsCancelled is_cancelled) {
  auto handle = std::make_unique<Handle>(Handle{deliver, fail, is_cancelled, nullptr});
  handle->link = std::make_unique<dragoman::Link>(supervisor, name);
  return handle.release();
}

EXPORTED int link_wait(void* handle, double timeout_s) { return static_cast<Handle*>(handle)->link->wait_until_routed(timeout_s) ? 1 : 0; }

EXPORTED std::uint64_t link_tables(void* handle) { return static_cast<Handle*>(handle)->link->tables(); }

EXPORTED void link_submit(void* handle, int kind, const char** parts, const std::uint64_t* sizes, int count, std::uint64_t reply) {
  auto& opened = *static_cast<Handle*>(handle);
  std::vector<std::string> copied;
  for (int part = 0; part < count; ++part) copied.emplace_back(parts[part], sizes[part]);
  opened.link->submit(static_cast<dragoman::Kind>(kind), std::move(copied), std::make_unique<CalledReply>(opened, reply));
}

EXPORTED void link_close(void* handle) { delete static_cast<Handle*>(handle); }

// 0: no JSON; 1: names no model; 2: the name is in `name`
EXPORTED int find_asked_model(const char* options, std::uint64_t size, char* name, std::uint64_t room) {
  const auto asked = dragoman::asked_model(std::string(options, size));
  std::snprintf(name, room, "%s", asked.name.c_str());
  return asked.readable ? (asked.named ? 2 : 1) : 0;
}
