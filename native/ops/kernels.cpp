#include "kernels.hpp"

#include <cstdlib>
#include <cstring>

#include "cpu_features.hpp"

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

const Kernels& chosen() {
  const CpuFeatures cpu;
  const Kernels* able[] = {cpu.v4_with_vnni() ? &avx512::kKernels : nullptr, cpu.v3() ? &avx2::kKernels : nullptr,
                           &plain::kKernels};
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
