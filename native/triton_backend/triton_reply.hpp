// The answer to one of Triton's requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models.hpp"
#include "request.hpp"
#include "triton.hpp"

namespace dragoman {

// Owns Triton's request until its last response, which also reports its duration to Triton's statistics.
//
// A stream never gets an error response, which with `triton_grpc_error` in the call's metadata brings Triton down now
// and then: the state of the call is released twice. It ends with an ordinary response that has the error in DETAILS.
// A model of one response may be called in a stream, too, and only that metadata shows it (Triton forwards it as a
// parameter): its refusal is an ordinary response then, with the error in DETAILS, MODEL_INFO or DECODED.
class TritonReply : public Reply {
 public:
  TritonReply(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, const Model& model);
  ~TritonReply() override;  // a request is never forgotten, whatever was thrown on the way
  TritonReply(const TritonReply&) = delete;
  TritonReply& operator=(const TritonReply&) = delete;

  bool wants(const std::string& output) const;
  void deliver(const Frame& frame) override;
  void fail(const Failure& failure) override;
  bool is_cancelled() override;

 private:
  bool send(const std::vector<OutputTensor>& tensors, bool only_wanted, bool is_last) noexcept;
  void send_error(const Failure& failure);
  void release(bool is_success) noexcept;

  TRITONBACKEND_ModelInstance* const instance_;
  TRITONBACKEND_Request* const request_;
  const Model& model_;
  const std::uint64_t began_ns_;
  const std::vector<std::string> wanted_;
  const bool takes_errors_;  // may an error response be sent?
  bool is_broken_ = false, is_released_ = false;
};

// Ends a request for which nothing else can be done, without a response.
void end_without_response(TRITONBACKEND_Request* request) noexcept;

}  // namespace dragoman
