#include "tensors.hpp"

#include <algorithm>
#include <cstring>

#include "frames.hpp"

namespace dragoman {
namespace {

constexpr std::uint64_t kLengthBytes = sizeof(std::uint32_t);  // before each string of a BYTES tensor

RefusedRequest invalid(const std::string& message) { return RefusedRequest({code::kInvalidRequest, message}); }

// An input as Triton holds it.
struct Input {
  TRITONBACKEND_Input* handle = nullptr;
  std::string name{};
  std::uint64_t items = 0, bytes = 0;
  std::uint32_t buffers = 0;
};

Input input_at(TRITONBACKEND_Request* request, std::uint32_t index) {
  Input input;
  check(TRITONBACKEND_RequestInputByIndex(request, index, &input.handle));
  const char* name = nullptr;
  TRITONSERVER_DataType type{};
  const std::int64_t* shape = nullptr;
  std::uint32_t dimensions = 0;
  check(TRITONBACKEND_InputProperties(input.handle, &name, &type, &shape, &dimensions, &input.bytes, &input.buffers));
  input.name = name;
  if (type != TRITONSERVER_TYPE_BYTES) throw invalid(input.name + " must be of type BYTES");
  if (dimensions != 1 || shape[0] < 0) throw invalid(input.name + " must have one dimension");
  input.items = static_cast<std::uint64_t>(shape[0]);
  return input;
}

std::vector<Input> inputs_of(TRITONBACKEND_Request* request) {
  std::uint32_t count = 0;
  check(TRITONBACKEND_RequestInputCount(request, &count));
  std::vector<Input> inputs;
  for (std::uint32_t index = 0; index < count; ++index) inputs.push_back(input_at(request, index));
  return inputs;
}

std::string too_long(const std::string& what, std::uint64_t bytes, std::uint64_t most) {
  return what + " has " + std::to_string(bytes) + " bytes; this server takes " + std::to_string(most);
}

bool has_texts(Role role) { return role == Role::texts || role == Role::targets; }

std::string noun_of(Role role) { return role == Role::targets ? "target" : "text"; }

std::string text_name(Role role, std::size_t number, std::uint64_t count) {
  return count == 1 ? "the " + noun_of(role) : noun_of(role) + " " + std::to_string(number);
}

void check_texts(const Input& input, Role role, const Limits& limits) {
  if (input.items > limits.max_texts) {
    throw invalid(std::to_string(input.items) + " " + noun_of(role) + "s are too many; this server takes " +
                  std::to_string(limits.max_texts) + ": send several requests");
  }
  if (input.items == 1 && input.bytes > kLengthBytes + limits.max_text_bytes) {
    throw invalid(too_long(text_name(role, 0, 1), input.bytes - kLengthBytes, limits.max_text_bytes) +
                  ": send it in pieces");
  }
}

void check_single(const Input& input, std::uint64_t most) {
  if (input.items != 1) throw invalid(input.name + " must have one element, not " + std::to_string(input.items));
  if (input.bytes > kLengthBytes + most) throw invalid(too_long(input.name, input.bytes - kLengthBytes, most));
}

// Of the input with that role; none where the request has no such input.
const Input* input_of(const std::vector<Input>& inputs, const std::vector<InputSpec>& specs, Role role) {
  for (const auto& spec : specs) {
    for (const auto& input : inputs) {
      if (spec.role == role && input.name == spec.name) return &input;
    }
  }
  return nullptr;
}

void check_targets(const std::vector<Input>& inputs, const std::vector<InputSpec>& specs) {
  const Input *targets = input_of(inputs, specs, Role::targets), *texts = input_of(inputs, specs, Role::texts);
  const std::uint64_t expected = texts == nullptr ? 0 : texts->items;
  if (targets == nullptr || targets->items == expected) return;
  throw invalid(targets->name + " has " + std::to_string(targets->items) + " elements for " + std::to_string(expected) +
                " texts; send one target for each text");
}

void check_sizes(const std::vector<Input>& inputs, const std::vector<InputSpec>& specs, const Limits& limits) {
  std::uint64_t bytes = 0;
  for (const auto& input : inputs) {
    bytes += input.bytes;
    for (const auto& spec : specs) {
      if (input.name != spec.name) continue;
      if (has_texts(spec.role)) {
        check_texts(input, spec.role, limits);
      } else {
        check_single(input, limits.*spec.max_bytes);
      }
    }
  }
  if (bytes > limits.max_request_bytes) {
    throw invalid(too_long("the request", bytes, limits.max_request_bytes) + ": send several requests");
  }
  check_targets(inputs, specs);
}

// The bytes of an input, which Triton may hold in several buffers.
std::string bytes_of(const Input& input) {
  std::string bytes;
  bytes.reserve(input.bytes);
  for (std::uint32_t index = 0; index < input.buffers; ++index) {
    const void* buffer = nullptr;
    std::uint64_t count = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    std::int64_t memory_id = 0;
    check(TRITONBACKEND_InputBuffer(input.handle, index, &buffer, &count, &memory, &memory_id));
    if (memory == TRITONSERVER_MEMORY_GPU)
      throw invalid("texts in a GPU's memory are not taken; send them with the request");
    bytes.append(static_cast<const char*>(buffer), count);
  }
  return bytes;
}

// u32 length · bytes, for every element; the lengths are the caller's and may lie.
std::vector<std::string> strings_of(const Input& input) {
  const std::string bytes = bytes_of(input);
  std::vector<std::string> found;
  found.reserve(input.items);
  for (std::size_t at = 0; at < bytes.size() && found.size() <= input.items;) {
    const std::size_t left = bytes.size() - at;
    const std::size_t length = left < kLengthBytes ? left : number_at<std::uint32_t>(bytes.data() + at);
    if (left < kLengthBytes || left - kLengthBytes < length) throw invalid(input.name + " is shorter than its lengths");
    found.emplace_back(bytes, at + kLengthBytes, length);
    at += kLengthBytes + length;
  }
  if (found.size() != input.items) throw invalid(input.name + " has another number of elements than its shape");
  return found;
}

std::vector<std::string> texts_of(const Input& input, Role role, std::uint64_t max_text_bytes) {
  auto texts = strings_of(input);
  for (std::size_t number = 0; number < texts.size(); ++number) {
    if (texts[number].size() <= max_text_bytes) continue;
    throw invalid(too_long(text_name(role, number, texts.size()), texts[number].size(), max_text_bytes) +
                  ": send it in pieces");
  }
  return texts;
}

}  // namespace

void read_inputs(TRITONBACKEND_Request* from, const std::vector<InputSpec>& specs, const Limits& limits, Request& request) {
  const auto inputs = inputs_of(from);
  check_sizes(inputs, specs, limits);
  for (const auto& spec : specs) {
    const auto is_it = [&spec](const Input& input) { return input.name == spec.name; };
    const auto input = std::find_if(inputs.begin(), inputs.end(), is_it);
    if (spec.role == Role::ignored) continue;
    if (has_texts(spec.role)) {
      if (input == inputs.end()) continue;
      if (spec.role == Role::targets) request.kind = Kind::score;
      auto texts = texts_of(*input, spec.role, limits.*spec.max_bytes);
      std::move(texts.begin(), texts.end(), std::back_inserter(request.parts));
      continue;
    }
    std::string value = input == inputs.end() ? "" : std::move(strings_of(*input).front());
    if (spec.role == Role::model) {
      request.bundle = std::move(value);
    } else {
      request.parts.push_back(std::move(value));
    }
  }
}

std::vector<std::string> wanted_outputs(TRITONBACKEND_Request* request) {
  std::uint32_t count = 0;
  check(TRITONBACKEND_RequestOutputCount(request, &count));
  std::vector<std::string> names(count);
  for (std::uint32_t index = 0; index < count; ++index) {
    const char* name = nullptr;
    check(TRITONBACKEND_RequestOutputName(request, index, &name));
    names[index] = name;
  }
  return names;
}

bool has_parameter(TRITONBACKEND_Request* request, const std::string& wanted) {
  std::uint32_t count = 0;
  check(TRITONBACKEND_RequestParameterCount(request, &count));
  for (std::uint32_t index = 0; index < count; ++index) {
    const char* name = nullptr;
    const void* value = nullptr;
    TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_STRING;
    check(TRITONBACKEND_RequestParameter(request, index, &name, &type, &value));
    if (wanted == name) return true;
  }
  return false;
}

std::string serialised(const std::vector<std::string>& strings, std::size_t first, std::size_t count) {
  std::string bytes;
  for (std::size_t at = first; at < first + count; ++at) {
    append_number(bytes, static_cast<std::uint32_t>(strings.at(at).size()));
    bytes += strings[at];
  }
  return bytes;
}

void add_output(TRITONBACKEND_Response* response, const OutputTensor& tensor) {
  TRITONBACKEND_Output* output = nullptr;
  check(TRITONBACKEND_ResponseOutput(response, &output, tensor.name, tensor.type, tensor.shape.data(),
                                     static_cast<std::uint32_t>(tensor.shape.size())));
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  std::int64_t memory_id = 0;
  check(TRITONBACKEND_OutputBuffer(output, &buffer, tensor.bytes.size(), &memory, &memory_id));
  if (memory == TRITONSERVER_MEMORY_GPU) throw TritonError("an output was requested in a GPU's memory");
  std::memcpy(buffer, tensor.bytes.data(), tensor.bytes.size());
}

}  // namespace dragoman
