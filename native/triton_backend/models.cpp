#include "models.hpp"

namespace dragoman {
namespace {

// (rows, columns) of a part
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

std::vector<OutputTensor> status_outputs(const Frame& frame) {
  return {{"STATUS", TRITONSERVER_TYPE_BYTES, {1}, serialised(frame.parts, 0, 1)}};
}

std::vector<InputSpec> text_inputs() {
  return {
      {"OPTIONS", Role::part, &Limits::max_options_bytes},
      {"TEXT", Role::texts, &Limits::max_text_bytes},
      {"MODEL", Role::model, &Limits::max_name_bytes},
  };
}

// `translate` also takes what is not to be translated but scored.
std::vector<InputSpec> text_and_target_inputs() {
  auto inputs = text_inputs();
  inputs.push_back({"TARGET", Role::targets, &Limits::max_text_bytes});
  return inputs;
}

std::vector<InputSpec> session_inputs() {
  return {
      {"SESSION", Role::part, &Limits::max_name_bytes},
      {"COMMAND", Role::part, &Limits::max_command_bytes},
      {"STEP", Role::part, &Limits::max_command_bytes},
  };
}

}  // namespace

const Model* find_model(const std::string& name) {
  static const std::vector<Model> models = {
      {"translate", Kind::translate, false, "DETAILS", text_and_target_inputs(), translate_outputs},
      {"translate_stream", Kind::stream, true, "DETAILS", text_inputs(), stream_outputs},
      {"encoder", Kind::encode, false, "MODEL_INFO", text_inputs(), encoder_outputs},
      {"decoder", Kind::decode, false, "DECODED", session_inputs(), decoder_outputs},
      {"server_status",
       std::nullopt,
       false,
       "STATUS",
       {{"QUERY", Role::ignored, &Limits::max_options_bytes}},
       status_outputs},
  };
  for (const auto& model : models) {
    if (name == model.name) return &model;
  }
  return nullptr;
}

std::vector<OutputTensor> refused_outputs(const Model& model, const Failure& failure) {
  if (model.is_stream) return stream_outputs({Kind::answer, 0, {"", failure.details()}});
  return {{model.error_output, TRITONSERVER_TYPE_BYTES, {1}, serialised({failure.details()}, 0, 1)}};
}

}  // namespace dragoman
