#include "ctran/reduction/simd_level.hpp"

#include <array>
#include <cstddef>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace torch::comms::ctran {
namespace {

constexpr std::array kAll = {SimdLevel::kPortable, SimdLevel::kAvx2, SimdLevel::kAvx512};

#if defined(__x86_64__)
// Only some compilers accept the name "f16c" in __builtin_cpu_supports().
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

size_t count_levels() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !has_f16c()) return 1;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? 3 : 2;
}
#else
size_t count_levels() { return 1; }
#endif

}  // namespace

std::span<const SimdLevel> simd_levels() noexcept {
  static const size_t count = count_levels();
  return std::span(kAll).first(count);
}

std::string_view name_of(SimdLevel level) noexcept {
  switch (level) {
    case SimdLevel::kAvx2:
      return "avx2";
    case SimdLevel::kAvx512:
      return "avx512";
    default:
      return "portable";
  }
}

}  // namespace torch::comms::ctran
