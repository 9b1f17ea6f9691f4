#include "tensors.hpp"

#include <algorithm>
#include <cstring>

#include "frames.hpp"

namespace dragoman {
namespace {

std::string bytes_of(TRITONBACKEND_Input* input, std::uint32_t buffers) {
  std::string bytes;
  for (std::uint32_t index = 0; index < buffers; ++index) {
    const void* buffer = nullptr;
    std::uint64_t count = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    std::int64_t memory_id = 0;
    check(TRITONBACKEND_InputBuffer(input, index, &buffer, &count, &memory, &memory_id));
    if (memory == TRITONSERVER_MEMORY_GPU) throw BadInput("texts in a GPU's memory are not taken; send them with the request");
    bytes.append(static_cast<const char*>(buffer), count);
  }
  return bytes;
}

// u32 length · bytes, for every element; the lengths are the caller's and may lie.
std::vector<std::string> elements(const std::string& bytes, const std::string& name) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t left = bytes.size() - at;
    const std::size_t length = left < sizeof(std::uint32_t) ? left : number_at<std::uint32_t>(bytes.data() + at);
    if (left < sizeof(std::uint32_t) || left - sizeof(std::uint32_t) < length) throw BadInput(name + " is shorter than its lengths say");
    found.emplace_back(bytes, at + sizeof(std::uint32_t), length);
    at += sizeof(std::uint32_t) + length;
  }
  return found;
}

}  // namespace

std::vector<std::string> strings_of(TRITONBACKEND_Request* request, const std::string& input, const std::vector<std::string>& missing) {
  std::uint32_t count = 0;
  check(TRITONBACKEND_RequestInputCount(request, &count));
  for (std::uint32_t index = 0; index < count; ++index) {
    TRITONBACKEND_Input* found = nullptr;
    check(TRITONBACKEND_RequestInputByIndex(request, index, &found));
    const char* name = nullptr;
    TRITONSERVER_DataType type{};
    const std::int64_t* shape = nullptr;
    std::uint32_t dimensions = 0, buffers = 0;
    std::uint64_t size = 0;
    check(TRITONBACKEND_InputProperties(found, &name, &type, &shape, &dimensions, &size, &buffers));
    if (input != name) continue;
    if (type != TRITONSERVER_TYPE_BYTES) throw BadInput(input + " must be of type BYTES");
    auto strings = elements(bytes_of(found, buffers), input);
    const bool is_whole = dimensions == 1 && shape[0] == static_cast<std::int64_t>(strings.size());
    if (!is_whole) throw BadInput(input + " has another number of elements than its shape says");
    return strings;
  }
  return missing;
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
  check(TRITONBACKEND_ResponseOutput(
      response, &output, tensor.name, tensor.type, tensor.shape.data(), static_cast<std::uint32_t>(tensor.shape.size())));
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  std::int64_t memory_id = 0;
  check(TRITONBACKEND_OutputBuffer(output, &buffer, tensor.bytes.size(), &memory, &memory_id));
  if (memory == TRITONSERVER_MEMORY_GPU) throw TritonError("an output was asked for in a GPU's memory");
  std::memcpy(buffer, tensor.bytes.data(), tensor.bytes.size());
}

}  // namespace dragoman
