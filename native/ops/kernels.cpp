#include "kernels.hpp"

#include <cstdlib>
#include <cstring>

namespace dragoman {

namespace plain {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

namespace {

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

const Kernels& chosen() {
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const Kernels* able[] = {has_avx512() ? &avx512::kKernels : nullptr, has_avx2 ? &avx2::kKernels : nullptr, &plain::kKernels};
  const char* wanted = std::getenv("DRAGOMAN_PROCESSOR");
  for (const Kernels* kernels : able)
    if (kernels != nullptr && (wanted == nullptr || std::strcmp(wanted, kernels->processor) == 0)) return *kernels;
  return plain::kKernels;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& found = chosen();
  return found;
}

}  // namespace dragoman
