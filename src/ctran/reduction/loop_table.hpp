#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ctran/reduction/dtype.hpp"
#include "ctran/reduction/simd_level.hpp"

// What the loops of one instruction set look like from outside: a table of functions.
namespace torch::comms::ctran {

// One call of a loop. Elements are counted as the loop does: for complex numbers, their parts.
struct LoopWork {
  std::byte* into = nullptr;
  const std::byte* const* sources = nullptr;  // the operands, left to right
  size_t operands = 0;
  size_t begin = 0, end = 0;     // elements
  bool is_non_temporal = false;  // store past the caches: into[begin] is aligned to 64 bytes
  uint32_t divisor = 1;
  double factor[2] = {1, 0};  // real, imaginary
  uint64_t integer = 1;       // the factor of integers
};

// Elements [begin, end) of the result.
using ReductionLoop = void (*)(const LoopWork&);

// Null where no reduction asks for the loop (see loop_key_of() in reduction.cpp).
struct LoopTable {
  template <class T>
  using ByDtype = std::array<T, kDtypeNumbers>;

  ByDtype<std::array<ReductionLoop, kReduceOpCodes>> reduce;  // operands and result of the dtype
  ByDtype<std::array<ReductionLoop, kReduceOpCodes>> finish;  // operands of its accumulator
  ByDtype<ReductionLoop> widen;                               // from the dtype to its accumulator
  ByDtype<ReductionLoop> widen_scaled;
  ByDtype<ReductionLoop> scale;
};

extern const LoopTable kPortableLoops;
#if defined(__x86_64__)
extern const LoopTable kAvx2Loops, kAvx512Loops;
#endif

const LoopTable& loops_of(SimdLevel level) noexcept;

// Runs the loop over `count` elements, each of `parts` of `part_bytes` in the result, past the
// caches where that is better. `work` says the rest.
void run_loop(ReductionLoop loop, LoopWork& work, size_t count, size_t parts,
              size_t part_bytes) noexcept;

}  // namespace torch::comms::ctran
