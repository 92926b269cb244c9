#pragma once

#include "ctran/kernels/find.hpp"
#include "ctran/kernels/run.cuh"
#include "ctran/kernels/visit.hpp"

// The kernels of reducing collectives. What is compiled for speed has a kernel of each collective's
// name; what is compiled for size has one for all of them.
namespace torch::comms::ctran::kernels {

// <Name>LoopTable: OneShot and TwoShot of a wire, a reducer and a number of ranks have the kernel's
// address.
#define TC_REDUCING_KERNELS(Name, has_two_hops)       \
  TC_ONE_SHOT(Name##OneShot)                          \
  TC_KERNEL_OF(Name##OneShot)                         \
  TC_TWO_SHOT(Name##TwoShot)                          \
  TC_KERNEL_OF(Name##TwoShot)                         \
  struct Name##Kernels {                              \
    static constexpr bool kHasTwoHops = has_two_hops; \
    template <class Wire, class F, int N>             \
    using OneShot = Name##OneShotOf<Wire, F, N>;      \
    template <class Wire, class F, int N>             \
    using TwoShot = Name##TwoShotOf<Wire, F, N>;      \
  };

// Those of which a product or a multiple of complex128 is made.
template <class F>
inline constexpr bool kMayBeWide = std::is_same_v<F, ComplexProduct<Plain<double>>> ||
                                   std::is_same_v<F, Reducer<Plain<double>, Sum>>;

// Null where there is none.
template <class C, class F>
const void* find_shape(Shape shape, int ranks) {
  if constexpr (kMayBeWide<F>) {
    if (shape.wire == WireKind::kWideLine && !shape.two_hops)
      return for_ranks<C::template OneShot, WideLineWire, F>(ranks);
    if constexpr (C::kHasTwoHops)
      if (shape.wire == WireKind::kWideLine)
        return for_ranks<C::template TwoShot, WideLineWire, F>(ranks);
  }
  if constexpr (F::kHot) {
    if (shape == Shape{WireKind::kLL, false, true})
      return for_ranks<C::template OneShot, Lean<LLWire>, F>(ranks);
    if (shape == Shape{WireKind::kLine, false, true})
      return for_ranks<C::template OneShot, Lean<LineWire>, F>(ranks);
    if constexpr (C::kHasTwoHops)
      if (shape == Shape{WireKind::kLine, true, true})
        return for_ranks<C::template TwoShot, Lean<LineWire>, F>(ranks);
    // Of two ranks alone.
    if (shape == Shape{WireKind::kLongLine, false})
      return C::template OneShot<LongLineWire, F, 2>::kernel();
    if (shape == Shape{WireKind::kLongLine, false, true})
      return C::template OneShot<Lean<LongLineWire>, F, 2>::kernel();
    if constexpr (C::kHasTwoHops) {
      if (shape == Shape{WireKind::kLongLine, true})
        return C::template TwoShot<LongLineWire, F, 2>::kernel();
      if (shape == Shape{WireKind::kLongLine, true, true})
        return C::template TwoShot<Lean<LongLineWire>, F, 2>::kernel();
    }
  }
  if constexpr (C::kHasTwoHops)
    if (shape == Shape{WireKind::kLine, true})
      return for_ranks<C::template TwoShot, LineWire, F>(ranks);
  if (shape == Shape{WireKind::kLine, false})
    return for_ranks<C::template OneShot, LineWire, F>(ranks);
  if (shape == Shape{WireKind::kLL, false}) return for_ranks<C::template OneShot, LLWire, F>(ranks);
  return nullptr;
}

template <class C, bool kHot>
struct FindShape {
  Shape shape;
  int ranks;
  template <class F>
  const void* operator()() const {
    if constexpr (F::kHot == kHot)
      return find_shape<C, F>(shape, ranks);
    else
      return nullptr;
  }
};
template <class C>
const void* find_hot(Cell cell, Shape shape, int ranks) {
  return visit_floats<const void*>(cell, FindShape<C, true>{shape, ranks});
}

}  // namespace torch::comms::ctran::kernels
