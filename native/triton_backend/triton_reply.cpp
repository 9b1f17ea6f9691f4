#include "triton_reply.hpp"

#include <algorithm>
#include <chrono>

namespace dragoman {
namespace {

TRITONSERVER_Error_Code status_of(const std::string& code) {
  if (code == code::kInvalidRequest) return TRITONSERVER_ERROR_INVALID_ARG;
  if (code == code::kOverloaded || code == code::kDraining || code == code::kRestarting)
    return TRITONSERVER_ERROR_UNAVAILABLE;
  if (code == code::kDeadlineExceeded || code == code::kCancelled) return TRITONSERVER_ERROR_CANCELLED;
  if (code == code::kSessionLost) return TRITONSERVER_ERROR_NOT_FOUND;
  return TRITONSERVER_ERROR_INTERNAL;
}

constexpr const char* kStrictErrors = "triton_grpc_error";

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// The last flag alone: a decoupled request must not end without it, and a unary one ends with an error then.
void send_last_flag(TRITONBACKEND_Request* request) noexcept {
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  ignore(TRITONBACKEND_ResponseFactoryNew(&factory, request));
  if (factory == nullptr) return;
  ignore(TRITONBACKEND_ResponseFactorySendFlags(factory, kResponseFinal));
  ignore(TRITONBACKEND_ResponseFactoryDelete(factory));
}

}  // namespace

void end_without_response(TRITONBACKEND_Request* request) noexcept {
  send_last_flag(request);
  ignore(TRITONBACKEND_RequestRelease(request, kReleaseAll));
}

TritonReply::TritonReply(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, const Model& model)
    : instance_(instance),
      request_(request),
      model_(model),
      began_ns_(now_ns()),
      wanted_(wanted_outputs(request)),
      takes_errors_(!model.is_stream && !has_parameter(request, kStrictErrors)) {}

TritonReply::~TritonReply() {
  if (!is_released_) end_without_response(request_);
}

bool TritonReply::wants(const std::string& output) const {
  return std::find(wanted_.begin(), wanted_.end(), output) != wanted_.end();
}

void TritonReply::deliver(const Frame& frame) {
  const bool is_last = frame.kind == Kind::answer;
  if (!is_broken_) {
    try {
      is_broken_ = !send(model_.outputs(frame), true, is_last);
    } catch (const std::exception& error) {
      log_error(("an engine's answer can't be passed on: " + std::string(error.what())).c_str());
      is_broken_ = true;
    }
  }
  if (!is_last) return;
  if (is_broken_) return fail(Failure::internal());  // a stream that lacks a piece must not end as if it were whole
  release(true);
}

void TritonReply::fail(const Failure& failure) {
  if (takes_errors_) {
    send_error(failure);
  } else if (!send(refused_outputs(model_, failure), false, true)) {
    send_last_flag(request_);  // the caller sees a stream that ends before its last response
  }
  release(false);
}

bool TritonReply::is_cancelled() {
  bool cancelled = false;
  ignore(TRITONBACKEND_RequestIsCancelled(request_, &cancelled));
  return cancelled;
}

bool TritonReply::send(const std::vector<OutputTensor>& tensors, bool only_wanted, bool is_last) noexcept {
  TRITONBACKEND_Response* response = nullptr;
  try {
    check(TRITONBACKEND_ResponseNew(&response, request_));
    for (const auto& tensor : tensors) {
      if (!only_wanted || wants(tensor.name)) add_output(response, tensor);
    }
  } catch (const std::exception& error) {
    log_error(error.what());
    if (response != nullptr) ignore(TRITONBACKEND_ResponseDelete(response));
    return false;
  }
  ignore(TRITONBACKEND_ResponseSend(response, is_last ? kResponseFinal : 0, nullptr));  // takes the response either way
  return true;
}

void TritonReply::send_error(const Failure& failure) {
  TRITONBACKEND_Response* response = nullptr;
  TRITONSERVER_Error* const error = TRITONSERVER_ErrorNew(status_of(failure.code), failure.text().c_str());
  ignore(TRITONBACKEND_ResponseNew(&response, request_));
  if (response != nullptr) ignore(TRITONBACKEND_ResponseSend(response, kResponseFinal, error));
  ignore(error);
}

void TritonReply::release(bool is_success) noexcept {
  const std::uint64_t ended_ns = now_ns();
  ignore(TRITONBACKEND_ModelInstanceReportStatistics(instance_, request_, is_success, began_ns_, began_ns_, ended_ns,
                                                     ended_ns));
  ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, 1, began_ns_, began_ns_, ended_ns, ended_ns));
  ignore(TRITONBACKEND_RequestRelease(request_, kReleaseAll));
  is_released_ = true;
}

}  // namespace dragoman
