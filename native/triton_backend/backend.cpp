// The Triton backend of dragoman's models: it forwards a request's bytes to an engine process and returns the answer.
//
// It runs inside the server, so nothing here parses options or computes: that is the engine process's work. Triton calls
// the functions at the end; no exception leaves them.
#include <cstdlib>
#include <memory>

#include "engine_client.hpp"
#include "models.hpp"
#include "publisher.hpp"
#include "tensors.hpp"
#include "triton.hpp"
#include "triton_reply.hpp"

#define EXPORTED __attribute__((visibility("default")))

namespace dragoman {
namespace {

constexpr const char* kSupervisorVariable = "DRAGOMAN_SUPERVISOR";
constexpr const char* kDetails = "DETAILS";
constexpr const char* kOldestTriton = "use Triton 2.39 (23.10) or newer";
constexpr const char* kUnknown = "an unknown exception in dragoman's backend";
constexpr double kStartTimeout_s = 3600.0;  // a large model may take long; the supervisor gives up earlier and says why

void check_api_version() {
  std::uint32_t major = 0, minor = 0;
  check(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major == kApiMajor && minor >= kApiMinMinor) return;
  const auto version = [](std::uint32_t first, std::uint32_t second) {
    return std::to_string(first) + "." + std::to_string(second);
  };
  const char* const way_out = major > kApiMajor ? "use an older Triton or a newer dragoman" : kOldestTriton;
  throw std::runtime_error("dragoman's backend needs version " + version(kApiMajor, kApiMinMinor) +
                           " or a later minor version of Triton's backend API; this Triton has " + version(major, minor) +
                           ": " + way_out);
}

std::string supervisor_socket() {
  const char* const path = std::getenv(kSupervisorVariable);
  if (path != nullptr) return path;
  throw std::runtime_error(std::string(kSupervisorVariable) + " is not set: start this server with `dragoman serve`");
}

// What the models of one server share.
class Backend {
 public:
  Backend() : client_(supervisor_socket(), publisher_) {}

  void wait_until_ready() {
    if (!client_.wait_until_ready(kStartTimeout_s)) throw std::runtime_error("no engine was ready in time");
  }

  // Answers `request`, now or later.
  void take(const Model& model, TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) noexcept {
    std::unique_ptr<TritonReply> reply;
    try {
      reply = std::make_unique<TritonReply>(instance, request, model);
    } catch (const std::exception& error) {
      log_error(error.what());
      return end_without_response(request);
    } catch (...) {
      log_error(kUnknown);
      return end_without_response(request);
    }
    try {
      handle(model, request, reply);
    } catch (const RefusedRequest& refused) {
      refuse(*reply, refused.failure);
    } catch (const std::exception& error) {
      log_error(error.what());
      if (reply) refuse(*reply, Failure::internal());
    } catch (...) {
      log_error(kUnknown);
      if (reply) refuse(*reply, Failure::internal());
    }
  }

 private:
  // `reply` moves with the request: its owner has to answer when something is thrown.
  void handle(const Model& model, TRITONBACKEND_Request* request, std::unique_ptr<TritonReply>& reply) {
    Request asked{model.kind.value_or(Kind::answer), ""};
    read_inputs(request, model.inputs, client_.limits(), asked);
    if (!model.kind) return reply->deliver({Kind::answer, 0, {client_.status()}});
    asked.wants_details = reply->wants(kDetails);
    client_.submit(std::move(asked), std::move(reply));
  }

  static void refuse(TritonReply& reply, const Failure& failure) noexcept {
    try {
      reply.fail(failure);
    } catch (...) {
      log_error("a request could not be refused");
    }
  }

  Publisher publisher_;  // outlives the client
  EngineClient client_;
};

// What Triton keeps for us with each model.
struct ServedModel {
  const Model& model;
  Backend& backend;
};

template <typename Body>
TRITONSERVER_Error* guarded(const Body& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  } catch (...) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, kUnknown);
  }
}

Backend* backend_of(TRITONBACKEND_Backend* backend) {
  void* state = nullptr;
  check(TRITONBACKEND_BackendState(backend, &state));
  return static_cast<Backend*>(state);
}

ServedModel* served_model_of(TRITONBACKEND_Model* model) {
  void* state = nullptr;
  check(TRITONBACKEND_ModelState(model, &state));
  return static_cast<ServedModel*>(state);
}

std::unique_ptr<ServedModel> served_model(TRITONBACKEND_Model* model) {
  const char* name = nullptr;
  TRITONBACKEND_Backend* backend = nullptr;
  check(TRITONBACKEND_ModelName(model, &name));
  check(TRITONBACKEND_ModelBackend(model, &backend));
  const Model* const found = find_model(name);
  if (found == nullptr) throw std::runtime_error(std::string("dragoman's backend has no model ") + name);
  return std::unique_ptr<ServedModel>(new ServedModel{*found, *backend_of(backend)});
}

}  // namespace
}  // namespace dragoman

extern "C" {

EXPORTED TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  return dragoman::guarded([backend] {
    dragoman::check_api_version();
    auto state = std::make_unique<dragoman::Backend>();
    dragoman::check(TRITONBACKEND_BackendSetState(backend, state.get()));
    static_cast<void>(state.release());  // Triton's, until it calls Finalize
  });
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {
  return dragoman::guarded([backend] { delete dragoman::backend_of(backend); });
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return dragoman::guarded([model] {
    auto state = dragoman::served_model(model);
    state->backend.wait_until_ready();
    dragoman::check(TRITONBACKEND_ModelSetState(model, state.get()));
    static_cast<void>(state.release());  // Triton's, until it calls ModelFinalize
  });
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return dragoman::guarded([model] { delete dragoman::served_model_of(model); });
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                                TRITONBACKEND_Request** requests, std::uint32_t count) {
  // Requests are answered one by one, when they are done: until then they are ours.
  return dragoman::guarded([=] {
    TRITONBACKEND_Model* model = nullptr;
    dragoman::check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    const dragoman::ServedModel& served = *dragoman::served_model_of(model);
    for (std::uint32_t at = 0; at < count; ++at) served.backend.take(served.model, instance, requests[at]);
  });
}

}  // extern "C"
