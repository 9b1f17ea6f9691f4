// A request's inputs and a response's outputs, between Triton's tensors and the parts of our frames.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "limits.hpp"
#include "request.hpp"
#include "triton.hpp"

namespace dragoman {

// What an input is for.
enum class Role {
  part,     // one string, a part of the frame
  texts,    // strings, the last parts of the frame
  targets,  // as many strings behind them, which make it a request for scores
  model,    // the name of the bundle
  ignored,  // one string that nothing depends on
};

struct InputSpec {
  const char* name;
  Role role;
  std::uint64_t Limits::*max_bytes;  // of one string
};

// Reads a request's inputs. Sizes are checked before a byte is copied; throws RefusedRequest with the value and the
// limit.
void read_inputs(TRITONBACKEND_Request* from, const std::vector<InputSpec>& specs, const Limits& limits, Request& request);

// Which outputs the caller requested.
std::vector<std::string> wanted_outputs(TRITONBACKEND_Request* request);

// Does a request have a parameter of that name? Forwarded metadata are parameters, too.
bool has_parameter(TRITONBACKEND_Request* request, const std::string& wanted);

// Strings from `first` on, as Triton serialises them.
std::string serialised(const std::vector<std::string>& strings, std::size_t first, std::size_t count);

struct OutputTensor {
  const char* name;
  TRITONSERVER_DataType type;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

void add_output(TRITONBACKEND_Response* response, const OutputTensor& tensor);

}  // namespace dragoman
