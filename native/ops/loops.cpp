#include "loops.hpp"

#include <cstdlib>
#include <cstring>

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

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

const Loops& chosen() {
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const Loops* able[] = {has_avx512() ? &avx512::kLoops : nullptr, has_avx2 ? &avx2::kLoops : nullptr, &plain::kLoops};
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
