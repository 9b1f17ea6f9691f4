#include "models.hpp"

namespace dragoman {
namespace {

// (rows, columns), as it lies in a part of a frame
std::vector<std::int64_t> grid(const std::string& part) {
  if (part.size() != 2 * sizeof(std::uint32_t)) throw BrokenStream("an answer without a shape");
  return {number_at<std::uint32_t>(part.data()), number_at<std::uint32_t>(part.data() + sizeof(std::uint32_t))};
}

std::vector<OutputTensor> translate_outputs(const Frame& frame) {
  const auto& parts = frame.parts;  // details, shape, scores, token counts, texts
  const auto shape = grid(parts.at(1));
  return {
      {"TRANSLATION", TRITONSERVER_TYPE_BYTES, shape, serialised(parts, 4, parts.size() - 4)},
      {"SCORE", TRITONSERVER_TYPE_FP32, shape, parts.at(2)},
      {"TOKEN_COUNT", TRITONSERVER_TYPE_INT32, shape, parts.at(3)},
      {"DETAILS", TRITONSERVER_TYPE_BYTES, {1}, serialised(parts, 0, 1)},
  };
}

std::vector<OutputTensor> stream_outputs(const Frame& frame) {
  return {
      {"CHUNK", TRITONSERVER_TYPE_BYTES, {1}, serialised(frame.parts, 0, 1)},
      {"FINAL", TRITONSERVER_TYPE_BOOL, {1}, std::string(1, frame.kind == Kind::answer ? '\1' : '\0')},
      {"DETAILS", TRITONSERVER_TYPE_BYTES, {1}, serialised(frame.parts, 1, 1)},
  };
}

std::vector<OutputTensor> encoder_outputs(const Frame& frame) {
  return {
      {"SESSION", TRITONSERVER_TYPE_BYTES, {1}, serialised(frame.parts, 0, 1)},
      {"MODEL_INFO", TRITONSERVER_TYPE_BYTES, {1}, serialised(frame.parts, 1, 1)},
  };
}

std::vector<OutputTensor> decoder_outputs(const Frame& frame) {
  const auto& parts = frame.parts;  // shape, tokens, log-probabilities, logits, texts
  const auto shape = grid(parts.at(0));
  const auto texts = static_cast<std::int64_t>(parts.size() - 4);
  return {
      {"BEST_TOKENS", TRITONSERVER_TYPE_INT32, shape, parts.at(1)},
      {"BEST_LOG_PROBS", TRITONSERVER_TYPE_FP32, shape, parts.at(2)},
      {"BEST_LOGITS", TRITONSERVER_TYPE_FP32, shape, parts.at(3)},
      {"DECODED", TRITONSERVER_TYPE_BYTES, {texts}, serialised(parts, 4, parts.size() - 4)},
  };
}

}  // namespace

const Model* find_model(const std::string& name) {
  static const std::vector<Model> models = {
      {"translate", Kind::translate, {{"OPTIONS", true}, {"TEXT", false}}, translate_outputs},
      {"translate_stream", Kind::stream, {{"OPTIONS", true}, {"TEXT", false}}, stream_outputs},
      {"encoder", Kind::encode, {{"OPTIONS", true}, {"TEXT", false}}, encoder_outputs},
      {"decoder", Kind::decode, {{"SESSION", true}, {"COMMAND", true}, {"STEP", true}}, decoder_outputs},
  };
  for (const auto& model : models) {
    if (name == model.name) return &model;
  }
  return nullptr;
}

}  // namespace dragoman
