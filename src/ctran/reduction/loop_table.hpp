#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ctran/reduction/dtype.hpp"
#include "ctran/reduction/simd_level.hpp"

// The table of the loops that one instruction set provides.
namespace torch::comms::ctran {

// The arguments of one call of a loop. Elements are counted as the loop counts them: a complex
// number has two.
struct LoopWork {
  std::byte* into = nullptr;
  const std::byte* const* sources = nullptr;  // the operands, left to right
  size_t operands = 0;
  size_t begin = 0, end = 0;     // elements
  bool is_non_temporal = false;  // stores past the caches; into[begin] is aligned to 64 bytes
  uint32_t divisor = 1;
  double factor[2] = {1, 0};  // real, imaginary
  uint64_t integer = 1;       // the factor for integers
};

// Computes elements [begin, end) of the result.
using ReductionLoop = void (*)(const LoopWork&);

// The loops by dtype and operation. Entries that no reduction uses are null (see loop_key_of() in
// reduction.cpp).
struct LoopTable {
  template <class T>
  using ByDtype = std::array<T, kDtypeNumbers>;

  ByDtype<std::array<ReductionLoop, kReduceOpCodes>> reduce;  // operands and result have the dtype
  // Operands have the accumulator's dtype.
  ByDtype<std::array<ReductionLoop, kReduceOpCodes>> finish;
  ByDtype<ReductionLoop> widen;  // from the dtype to its accumulator
  ByDtype<ReductionLoop> widen_scaled;
  ByDtype<ReductionLoop> scale;
};

extern const LoopTable kPortableLoops;
#if defined(__x86_64__)
extern const LoopTable kAvx2Loops, kAvx512Loops;
#endif

const LoopTable& loops_of(SimdLevel level) noexcept;

// Runs the loop over `count` elements, each of `parts` parts of `part_bytes` in the result. Stores
// past the caches if that is faster. `work` has the other arguments.
void run_loop(ReductionLoop loop, LoopWork& work, size_t count, size_t parts,
              size_t part_bytes) noexcept;

}  // namespace torch::comms::ctran
