// What each processor's namespace has; `table.cpp` puts it together.
#pragma once

#include "../loops.hpp"

namespace dragoman::DRAGOMAN_PROCESSOR {

void attend(const Attention& attention);
void multiply_floats(const FloatProduct& product, std::int64_t begin, std::int64_t end);
void multiply_integers(const IntegerProduct& product, std::int64_t begin, std::int64_t end);
Row quantise(const float* x, std::int64_t count, std::uint8_t* integers);
void add_norm(const float* x, const float* update, const float* gamma, const float* beta, float epsilon, std::int64_t width,
              float* to);
void silu(const float* x, std::int64_t count, float* to);
Survey survey(const float* logits, const float* bias, std::int64_t count, float* peaks);

}  // namespace dragoman::DRAGOMAN_PROCESSOR
