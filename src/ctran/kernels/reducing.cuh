#pragma once

#include "ctran/kernels/find.hpp"
#include "ctran/kernels/run.cuh"
#include "ctran/kernels/visit.hpp"

// The kernels of a reducing collective. One of them is described by a type C with
//   template <class Wire, class F, int N> OneShot, TwoShot   that have the kernel's address
//   kHasTwoHops
namespace torch::comms::ctran::kernels {

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

template <class C>
struct FindShape {
  Shape shape;
  int ranks;
  template <class F>
  const void* operator()() const {
    return find_shape<C, F>(shape, ranks);
  }
};

template <class C>
const void* find_of_floats(Cell cell, Shape shape, int ranks) {
  return visit_floats<const void*>(cell, FindShape<C>{shape, ranks});
}
template <class C>
const void* find_of_small_floats(Cell cell, Shape shape, int ranks) {
  return visit_small_floats<const void*>(cell, FindShape<C>{shape, ranks});
}
template <class C>
const void* find_of_integers(Cell cell, Shape shape, int ranks) {
  return visit_integers<const void*>(cell, FindShape<C>{shape, ranks});
}

}  // namespace torch::comms::ctran::kernels
