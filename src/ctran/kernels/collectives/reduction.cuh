#pragma once

#include "ctran/kernels/collectives/reducer_visit.hpp"
#include "ctran/kernels/host/kernel_table.hpp"
#include "ctran/kernels/protocol/kernel_main.cuh"

// Kernels of reducing collectives. Reducers that are compiled for speed have a kernel with the name
// of each collective; reducers that are compiled for size have one kernel for all.
namespace torch::comms::ctran::kernels {

// Defines <Name>Kernels, whose OneShot and TwoShot have the address of the kernel for a packet
// protocol, a reducer and a number of ranks.
#define TC_REDUCING_KERNELS(Name, has_two_hops)       \
  TC_ONE_SHOT(Name##OneShot)                          \
  TC_KERNEL_OF(Name##OneShot)                         \
  TC_TWO_SHOT(Name##TwoShot)                          \
  TC_KERNEL_OF(Name##TwoShot)                         \
  struct Name##Kernels {                              \
    static constexpr bool kHasTwoHops = has_two_hops; \
    template <class Protocol, class F, int N>         \
    using OneShot = Name##OneShotOf<Protocol, F, N>;  \
    template <class Protocol, class F, int N>         \
    using TwoShot = Name##TwoShotOf<Protocol, F, N>;  \
  };

// Reducers from which a product or a multiple of complex128 is made.
template <class F>
inline constexpr bool kMayBeWide = std::is_same_v<F, ComplexProduct<Plain<double>>> ||
                                   std::is_same_v<F, Reducer<Plain<double>, Sum>>;

// Returns null if there is no such kernel.
template <class C, class F>
const void* find_shape(KernelShape shape, int ranks) {
  if constexpr (kMayBeWide<F>) {
    if (shape.protocol == PacketProtocol::kWideLL128 && !shape.two_hops)
      return for_ranks<C::template OneShot, WideLL128Protocol, F>(ranks);
    if constexpr (C::kHasTwoHops)
      if (shape.protocol == PacketProtocol::kWideLL128)
        return for_ranks<C::template TwoShot, WideLL128Protocol, F>(ranks);
  }
  if constexpr (F::kHot) {
    if (shape == KernelShape{PacketProtocol::kLL, false, true})
      return for_ranks<C::template OneShot, Lean<LLProtocol>, F>(ranks);
    if (shape == KernelShape{PacketProtocol::kLL128, false, true})
      return for_ranks<C::template OneShot, Lean<LL128Protocol>, F>(ranks);
    if constexpr (C::kHasTwoHops)
      if (shape == KernelShape{PacketProtocol::kLL128, true, true})
        return for_ranks<C::template TwoShot, Lean<LL128Protocol>, F>(ranks);
    // Only teams of two ranks use long LL128.
    if (shape == KernelShape{PacketProtocol::kLongLL128, false})
      return C::template OneShot<LongLL128Protocol, F, 2>::kernel();
    if (shape == KernelShape{PacketProtocol::kLongLL128, false, true})
      return C::template OneShot<Lean<LongLL128Protocol>, F, 2>::kernel();
    if constexpr (C::kHasTwoHops) {
      if (shape == KernelShape{PacketProtocol::kLongLL128, true})
        return C::template TwoShot<LongLL128Protocol, F, 2>::kernel();
      if (shape == KernelShape{PacketProtocol::kLongLL128, true, true})
        return C::template TwoShot<Lean<LongLL128Protocol>, F, 2>::kernel();
    }
  }
  if constexpr (C::kHasTwoHops)
    if (shape == KernelShape{PacketProtocol::kLL128, true})
      return for_ranks<C::template TwoShot, LL128Protocol, F>(ranks);
  if (shape == KernelShape{PacketProtocol::kLL128, false})
    return for_ranks<C::template OneShot, LL128Protocol, F>(ranks);
  if (shape == KernelShape{PacketProtocol::kLL, false})
    return for_ranks<C::template OneShot, LLProtocol, F>(ranks);
  return nullptr;
}

template <class C, bool kHot>
struct FindShape {
  KernelShape shape;
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
const void* find_hot(ReducerId id, KernelShape shape, int ranks) {
  return visit_floats<const void*>(id, FindShape<C, true>{shape, ranks});
}

}  // namespace torch::comms::ctran::kernels
