#include "declared.hpp"

#define DRAGOMAN_NAME_OF(name) #name
#define DRAGOMAN_NAME(name) DRAGOMAN_NAME_OF(name)

namespace dragoman::DRAGOMAN_PROCESSOR {

extern const Kernels kKernels;
const Kernels kKernels = {
    attend, multiply_floats, multiply_integers, quantise, norm, log_sum_exp, DRAGOMAN_NAME(DRAGOMAN_PROCESSOR)};

}  // namespace dragoman::DRAGOMAN_PROCESSOR
