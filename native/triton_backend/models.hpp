// The Triton models (dragoman.wire.MODELS): which inputs make a request's frame, and which outputs an answer's frame
// becomes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frames.hpp"
#include "tensors.hpp"

namespace dragoman {

struct Model {
  const char* name;
  std::optional<Kind> kind;       // of its requests' frames; none: the backend answers by itself
  bool is_stream;                 // refused by an ordinary last response instead of an error
  const char* error_output;       // where such a response has the error
  std::vector<InputSpec> inputs;  // in the order of the frame's parts
  std::vector<OutputTensor> (*outputs)(const Frame& frame);
};

// nullptr when there is none of that name.
const Model* find_model(const std::string& name);

// The last response of a stream that is refused or fails; of another model that was called in a stream, its error alone.
std::vector<OutputTensor> refused_outputs(const Model& model, const Failure& failure);

}  // namespace dragoman
