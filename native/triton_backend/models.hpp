// Our Triton models: which inputs make a request's frame, and which outputs an answer's frame becomes.
#pragma once

#include <string>
#include <vector>

#include "frames.hpp"
#include "tensors.hpp"

namespace dragoman {

struct Model {
  const char* name;
  Kind kind;
  // In the order of the frame's parts; the strings of the last one follow one after the other.
  std::vector<std::pair<const char*, bool>> inputs;  // name, and whether it may be left out
  std::vector<OutputTensor> (*outputs)(const Frame& frame);
};

// nullptr when there is none of that name.
const Model* find_model(const std::string& name);

}  // namespace dragoman
