// What the processor and the operating system support, read with the CPUID instruction. The compilers' own
// `__builtin_cpu_supports` needs a variable of their runtime library, which not every compiler links into a shared library.
#pragma once

#include <cpuid.h>

#include <cstdint>

namespace dragoman {

class CpuFeatures {
 public:
  CpuFeatures() {
    std::uint32_t eax = 0, ebx = 0, edx = 0;
    __get_cpuid(1, &eax, &ebx, &basic_, &edx);
    __get_cpuid_count(7, 0, &eax, &extended_b_, &extended_c_, &edx);
    __get_cpuid(0x80000001, &eax, &ebx, &amd_, &edx);
    if (has(basic_, 27)) saved_by_system_ = enabled_states();  // OSXSAVE: XGETBV may be executed
  }

  // x86-64-v3: AVX2, FMA, and the smaller extensions that the compiler may use with them.
  bool v3() const {
    return (saved_by_system_ & kAvxState) == kAvxState && has(basic_, 12) /* FMA */ && has(basic_, 22) /* MOVBE */ &&
           has(basic_, 28) /* AVX */ && has(basic_, 29) /* F16C */ && has(extended_b_, 3) /* BMI1 */ &&
           has(extended_b_, 5) /* AVX2 */ && has(extended_b_, 8) /* BMI2 */ && has(amd_, 5) /* LZCNT */;
  }

  // x86-64-v4 and its int8 products (VNNI).
  bool v4_with_vnni() const {
    return v3() && (saved_by_system_ & kAvx512State) == kAvx512State && has(extended_b_, 16) /* F */ &&
           has(extended_b_, 17) /* DQ */ && has(extended_b_, 28) /* CD */ && has(extended_b_, 30) /* BW */ &&
           has(extended_b_, 31) /* VL */ && has(extended_c_, 11) /* VNNI */;
  }

 private:
  // Bits of XCR0: the registers that the system saves when it switches between threads.
  static constexpr std::uint64_t kAvxState = 0x6, kAvx512State = 0xE6;

  static bool has(std::uint32_t bits, int number) { return (bits >> number & 1) != 0; }

  static std::uint64_t enabled_states() {
    std::uint32_t low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return std::uint64_t{high} << 32 | low;
  }

  std::uint32_t basic_ = 0, extended_b_ = 0, extended_c_ = 0, amd_ = 0;
  std::uint64_t saved_by_system_ = 0;
};

}  // namespace dragoman
