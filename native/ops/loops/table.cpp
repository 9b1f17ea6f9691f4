#include "declared.hpp"

#define DRAGOMAN_NAME_OF(name) #name
#define DRAGOMAN_NAME(name) DRAGOMAN_NAME_OF(name)

namespace dragoman::DRAGOMAN_PROCESSOR {

extern const Loops kLoops;
const Loops kLoops = {attend,   multiply_floats, multiply_integers, quantise,
                      add_norm, silu,            survey,            DRAGOMAN_NAME(DRAGOMAN_PROCESSOR)};

}  // namespace dragoman::DRAGOMAN_PROCESSOR
