// What each instruction set's namespace has; `table.cpp` puts it together.
#pragma once

#include "../kernels.hpp"

namespace dragoman::DRAGOMAN_PROCESSOR {

void attend(const Attention& attention);
void multiply_floats(const FloatMatMul& product, std::int64_t begin, std::int64_t end);
void multiply_integers(const IntegerMatMul& product, std::int64_t begin, std::int64_t end);
void activate(Activation activation, float* x, std::int64_t count);
QuantisedRow quantise(const float* x, std::int64_t count, std::uint8_t* integers);
void norm(const float* x, const float* update, const NormWeights& weights, std::int64_t width, float* sum, float* output);
LogSumExp log_sum_exp(LogSumExp before, const float* logits, const float* bias, std::int64_t count, float* block_maxima);

}  // namespace dragoman::DRAGOMAN_PROCESSOR
