// A request's inputs and a response's outputs, between Triton's tensors and the parts of our frames.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "triton.hpp"

namespace dragoman {

// The inputs are not what they claim to be: told to the caller.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The strings of an input; `missing` where the caller left it out.
std::vector<std::string> strings_of(TRITONBACKEND_Request* request, const std::string& input, const std::vector<std::string>& missing);

// Which outputs the caller asked for.
std::vector<std::string> wanted_outputs(TRITONBACKEND_Request* request);

// Strings from `first` to the end, as Triton serialises them.
std::string serialised(const std::vector<std::string>& strings, std::size_t first, std::size_t count);

struct OutputTensor {
  const char* name;
  TRITONSERVER_DataType type;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

void add_output(TRITONBACKEND_Response* response, const OutputTensor& tensor);

}  // namespace dragoman
