// The door: Triton's backend for our models. It hands a request's bytes to an engine process and sends back what that says.
//
// It runs inside the server, so nothing here parses, computes or trusts: that is the engine process's work.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "link.hpp"
#include "models.hpp"
#include "publisher.hpp"
#include "tensors.hpp"
#include "triton.hpp"

#define EXPORTED __attribute__((visibility("default")))

namespace dragoman {
namespace {

constexpr const char* kSupervisorVariable = "DRAGOMAN_SUPERVISOR";
constexpr const char* kPublishedBy = "encoder";  // the model whose door publishes everybody's metrics: it has little else to do
constexpr const char* kDetails = "DETAILS";
constexpr double kStartTimeout_s = 3600.0;  // a large model may take its time; the supervisor gives up earlier and says why

const Failure kInternal = Failure::say("INTERNAL", "the server failed at this request; its log says why");

TRITONSERVER_Error_Code status_of(const std::string& code) {
  if (code == "INVALID_REQUEST") return TRITONSERVER_ERROR_INVALID_ARG;
  if (code == "OVERLOADED" || code == "DRAINING" || code == "RESTARTING") return TRITONSERVER_ERROR_UNAVAILABLE;
  if (code == "DEADLINE_EXCEEDED" || code == "CANCELLED") return TRITONSERVER_ERROR_CANCELLED;
  if (code == "SESSION_LOST") return TRITONSERVER_ERROR_NOT_FOUND;
  return TRITONSERVER_ERROR_INTERNAL;
}

// What callers are not told stands in the server's log.
void log(const std::exception& error) {
  const std::string text = std::string("the door could not pass a request on: ") + error.what();
  ignore(TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, "backend.cpp", __LINE__, text.c_str()));
}

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// Owns Triton's request until its last word, which also tells Triton's statistics how long it took.
class TritonReply : public Reply {
 public:
  TritonReply(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, const Model& model)
      : instance_(instance), request_(request), model_(model), began_ns_(now_ns()), wanted_(wanted_outputs(request)) {}

  bool wants(const std::string& output) const { return std::find(wanted_.begin(), wanted_.end(), output) != wanted_.end(); }

  void deliver(const Frame& frame) override {
    const bool is_last = frame.kind == Kind::answer;
    if (broken_) {  // a stream that lacks a piece must not end as if it were whole
      if (is_last) fail(kInternal);
      return;
    }
    TRITONBACKEND_Response* response = nullptr;
    try {
      const auto tensors = model_.outputs(frame);
      check(TRITONBACKEND_ResponseNew(&response, request_));
      for (const auto& tensor : tensors) {
        if (wants(tensor.name)) add_output(response, tensor);
      }
    } catch (const std::exception& error) {
      log(error);
      broken_ = true;
      if (response != nullptr) ignore(TRITONBACKEND_ResponseDelete(response));
      if (is_last) fail(kInternal);
      return;
    }
    ignore(TRITONBACKEND_ResponseSend(response, is_last ? kResponseFinal : 0, nullptr));
    if (is_last) release(true);
  }

  void fail(const Failure& failure) override {
    TRITONBACKEND_Response* response = nullptr;
    TRITONSERVER_Error* error = TRITONSERVER_ErrorNew(status_of(failure.code), failure.text.c_str());
    ignore(TRITONBACKEND_ResponseNew(&response, request_));
    if (response != nullptr) ignore(TRITONBACKEND_ResponseSend(response, kResponseFinal, error));
    ignore(error);
    release(false);
  }

  bool is_cancelled() override {
    bool cancelled = false;
    ignore(TRITONBACKEND_RequestIsCancelled(request_, &cancelled));
    return cancelled;
  }

 private:
  void release(bool success) {
    const std::uint64_t ended_ns = now_ns();
    ignore(TRITONBACKEND_ModelInstanceReportStatistics(instance_, request_, success, began_ns_, began_ns_, ended_ns, ended_ns));
    ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, 1, began_ns_, began_ns_, ended_ns, ended_ns));
    ignore(TRITONBACKEND_RequestRelease(request_, kReleaseAll));
  }

  TRITONBACKEND_ModelInstance* const instance_;
  TRITONBACKEND_Request* const request_;
  const Model& model_;
  const std::uint64_t began_ns_;
  const std::vector<std::string> wanted_;
  bool broken_ = false;
};

class Door {
 public:
  explicit Door(const std::string& name)
      : model_(find_model(name)),
        publisher_(name == kPublishedBy ? std::make_unique<Publisher>() : nullptr),
        link_(supervisor(name), name, publisher_.get()) {
    if (!link_.wait_until_routed(kStartTimeout_s)) throw std::runtime_error("no engine was ready in time");
  }

  void take(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) {
    auto reply = std::make_unique<TritonReply>(instance, request, *model_);
    std::vector<std::string> parts;
    try {
      for (const auto& [name, optional] : model_->inputs) {
        auto strings = strings_of(request, name, optional ? std::vector<std::string>{""} : std::vector<std::string>{});
        std::move(strings.begin(), strings.end(), std::back_inserter(parts));
      }
    } catch (const BadInput& error) {
      return reply->fail(Failure::say("INVALID_REQUEST", error.what()));
    } catch (const TritonError& error) {
      log(error);
      return reply->fail(kInternal);
    }
    const bool bare = !reply->wants(kDetails);
    link_.submit(model_->kind, std::move(parts), std::move(reply), bare);
  }

 private:
  std::string supervisor(const std::string& name) const {
    const char* const path = std::getenv(kSupervisorVariable);
    if (model_ == nullptr) throw std::runtime_error("the door knows no model " + name);
    if (path == nullptr) throw std::runtime_error(std::string(kSupervisorVariable) + " is not set: this server was not started by dragoman");
    return path;
  }

  const Model* const model_;
  const std::unique_ptr<Publisher> publisher_;  // outlives the link, which tells it
  Link link_;
};

// Nothing is thrown across the border.
template <typename Body>
TRITONSERVER_Error* guarded(const Body& body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  }
}

Door* door_of(TRITONBACKEND_Model* model) {
  void* state = nullptr;
  check(TRITONBACKEND_ModelState(model, &state));
  return static_cast<Door*>(state);
}

}  // namespace
}  // namespace dragoman

extern "C" {

EXPORTED TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
  return dragoman::guarded([] {
    std::uint32_t major = 0, minor = 0;
    dragoman::check(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != 1) throw std::runtime_error("this Triton has version " + std::to_string(major) + " of the interface for backends; 1 is needed");
  });
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return dragoman::guarded([model] {
    const char* name = nullptr;
    dragoman::check(TRITONBACKEND_ModelName(model, &name));
    auto door = std::make_unique<dragoman::Door>(name);
    dragoman::check(TRITONBACKEND_ModelSetState(model, door.get()));
    door.release();
  });
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return dragoman::guarded([model] { delete dragoman::door_of(model); });
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, std::uint32_t count) {
  // Requests are answered one by one, when they are done: until then they are ours.
  return dragoman::guarded([=] {
    TRITONBACKEND_Model* model = nullptr;
    dragoman::check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    dragoman::Door* const door = dragoman::door_of(model);
    for (std::uint32_t at = 0; at < count; ++at) door->take(instance, requests[at]);
  });
}

}  // extern "C"
