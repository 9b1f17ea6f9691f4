#include "loops.hpp"

#include <cstdlib>
#include <cstring>

#include "cpu_features.hpp"

namespace dragoman {

namespace plain {
extern const Loops kLoops;
}
namespace avx2 {
extern const Loops kLoops;
}
namespace avx512 {
extern const Loops kLoops;
}

namespace {

const Loops& chosen() {
  const CpuFeatures cpu;
  const Loops* able[] = {
      cpu.v4_with_vnni() ? &avx512::kLoops : nullptr, cpu.v3() ? &avx2::kLoops : nullptr, &plain::kLoops};
  const char* wanted = std::getenv("DRAGOMAN_PROCESSOR");
  for (const Loops* loops : able)
    if (loops != nullptr && (wanted == nullptr || std::strcmp(wanted, loops->processor) == 0)) return *loops;
  return plain::kLoops;
}

}  // namespace

const Loops& loops() {
  static const Loops& found = chosen();
  return found;
}

}  // namespace dragoman
