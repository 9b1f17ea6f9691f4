// LayerNorm and RMSNorm, with or without the residual connection before them.
#pragma once

#include "../kernels.hpp"
#include "../operator.hpp"
#include "../validate.hpp"

namespace dragoman {

struct NormSettings {
  float epsilon;
  bool rms;

  explicit NormSettings(const Attributes& attributes)
      : epsilon(attributes.real("epsilon")), rms(attributes.integer_or(0, "rms", 0, 1) == 1) {
    require(epsilon >= 0, "epsilon must not be negative");
  }

  NormWeights weights(const Tensor& gamma, const Tensor& beta, std::int64_t width) const {
    require(width > 0, "there is nothing to normalise");
    require(gamma.sizes[0] == width && (beta.data == nullptr || beta.sizes[0] == width), "γ and β must be (width)");
    return {gamma.as<float>(), beta.as<float>(), epsilon, rms};
  }
};

// norm(x): x (rows, width), γ (width), and perhaps β (width).
struct Norm {
  static constexpr const char* kName = "Norm";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat};
  static constexpr std::size_t kRequired = 2;
  NormSettings settings;

  explicit Norm(const Attributes& attributes) : settings(attributes) {}

  static void infer(const Shapes& shapes) {
    shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), shapes.size_of(0, 1)});
  }

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const std::int64_t rows = x.sizes[0], width = x.sizes[1];
    const NormWeights weights = settings.weights(context.input(1, 1), context.optional_input(2, 1), width);
    auto* output = context.output<float>(0, rows, width);
    context.each(rows, rows * width / 8, [&](std::int64_t row) {
      kernels().norm(x.as<float>() + row * width, nullptr, weights, width, nullptr, output + row * width);
    });
  }
};

// norm(x + update) and, where it is used, x + update: both (rows, width), γ (width), and perhaps β (width).
struct AddNorm {
  static constexpr const char* kName = "AddNorm";
  static constexpr ElementType kInputs[] = {ElementType::kFloat, ElementType::kFloat, ElementType::kFloat,
                                            ElementType::kFloat};
  static constexpr ElementType kOutputs[] = {ElementType::kFloat, ElementType::kFloat};
  static constexpr std::size_t kRequired = 3, kRequiredOutputs = 1;
  static constexpr Shared kInPlace = {0, 1};
  NormSettings settings;

  explicit AddNorm(const Attributes& attributes) : settings(attributes) {}

  static void infer(const Shapes& shapes) {
    shapes.set(0, ElementType::kFloat, {shapes.size_of(0, 0), shapes.size_of(0, 1)});
  }

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2), update = context.input(1, 2);
    const std::int64_t rows = x.sizes[0], width = x.sizes[1];
    require(update.sizes[0] == rows && update.sizes[1] == width, "what is added must have the same shape");
    const NormWeights weights = settings.weights(context.input(2, 1), context.optional_input(3, 1), width);
    auto* output = context.output<float>(0, rows, width);
    auto* sum = context.output<float>(1, rows, width);
    if (sum == nullptr) sum = output;
    context.each(rows, rows * width / 8, [&](std::int64_t row) {
      const std::int64_t at = row * width;
      kernels().norm(x.as<float>() + at, update.as<float>() + at, weights, width, sum + at, output + at);
    });
  }
};

}  // namespace dragoman
