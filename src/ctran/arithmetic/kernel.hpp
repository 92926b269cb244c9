#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ctran/arithmetic/dtype.hpp"
#include "ctran/arithmetic/level.hpp"

// What the loops of one instruction set look like from outside: a table of functions.
namespace torch::comms::ctran {

// One call of a loop. Elements are counted as the loop does: for complex numbers, their parts.
struct LoopWork {
  std::byte* into = nullptr;
  const std::byte* const* sources = nullptr;  // the operands, left to right
  size_t operands = 0;
  size_t begin = 0, end = 0;  // elements
  bool stream = false;        // store past the caches: into[begin] is aligned to 64 bytes
  uint32_t divisor = 1;
  double factor[2] = {1, 0};  // real, imaginary
  uint64_t integer = 1;       // the factor of integers
};

// Elements [begin, end) of the result.
using Kernel = void (*)(const LoopWork&);

// Null where no reduction asks for the loop (see cell_of() in reduction.cpp).
struct Kernels {
  template <class T>
  using ByDtype = std::array<T, kDtypeNumbers>;

  ByDtype<std::array<Kernel, kReduceOpNumbers>> reduce;  // operands and result of the dtype
  ByDtype<std::array<Kernel, kReduceOpNumbers>> settle;  // operands of its accumulator
  ByDtype<Kernel> widen;                                 // from the dtype to its accumulator
  ByDtype<Kernel> widen_scaled;
  ByDtype<Kernel> scale;
};

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels, kAvx512Kernels;
#endif

const Kernels& kernels_of(Level level) noexcept;

// Runs the loop over `count` elements, each of `parts` of `part_bytes` in the result, past the
// caches where that is better. `work` says the rest.
void launch(Kernel loop, LoopWork& work, size_t count, size_t parts, size_t part_bytes) noexcept;

}  // namespace torch::comms::ctran
