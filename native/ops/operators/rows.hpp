// What is done to each row of numbers by itself.
#pragma once

#include "../loops.hpp"
#include "../runtime.hpp"
#include "require.hpp"

namespace dragoman {

// norm(x + update): both (rows, width), γ and β (width).
struct AddNorm {
  static constexpr const char* kName = "AddNorm";
  static constexpr Type kInputs[] = {Type::kFloat, Type::kFloat, Type::kFloat, Type::kFloat};
  static constexpr Type kOutputs[] = {Type::kFloat};
  float epsilon;

  explicit AddNorm(const Attributes& attributes) : epsilon(attributes.real("epsilon")) {}

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2), update = context.input(1, 2);
    const Tensor gamma = context.input(2, 1), beta = context.input(3, 1);
    const std::int64_t rows = x.sizes[0], width = x.sizes[1];
    require(update.sizes[0] == rows && update.sizes[1] == width, "inputs do not fit together");
    require(gamma.sizes[0] == width && beta.sizes[0] == width && width % kEight == 0, "inputs do not fit together");
    float* to = context.output<float>(0, rows, width);
    context.each(rows, rows * width / 8, [&](std::int64_t row) {
      loops().add_norm(x.as<float>() + row * width, update.as<float>() + row * width, gamma.as<float>(), beta.as<float>(), epsilon, width,
               to + row * width);
    });
  }
};

// x · sigmoid(x), x (rows, width).
struct Silu {
  static constexpr const char* kName = "Silu";
  static constexpr Type kInputs[] = {Type::kFloat};
  static constexpr Type kOutputs[] = {Type::kFloat};

  explicit Silu(const Attributes&) {}

  void compute(const Context& context) const {
    const Tensor x = context.input(0, 2);
    const std::int64_t rows = x.sizes[0], width = x.sizes[1];
    float* to = context.output<float>(0, rows, width);
    context.each(rows, rows * width / 4,
                 [&](std::int64_t row) { loops().silu(x.as<float>() + row * width, width, to + row * width); });
  }
};

}  // namespace dragoman
