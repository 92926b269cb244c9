#pragma once

#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "ctran/kernels/messages/message_kind.hpp"
#include "ctran/kernels/protocol/layout.hpp"

// Finds kernels by what they do. Each function is in a file of its own, so that nvcc compiles the
// files in parallel.
namespace torch::comms::ctran::kernels {

// The variant of a collective's kernel.
struct KernelShape {
  PacketProtocol protocol;
  bool two_hops;
  // A lean kernel takes only calls of whole aligned vectors that are neither scaled nor divided.
  // Peers see no difference. Its code is a third as long, and every launch has to fetch its code
  // again: an all_reduce of 1 KB on 4 H200 takes 3.1 us instead of 3.7.
  bool is_lean = false;
  bool operator==(const KernelShape&) const = default;
};

// All functions return null if there is no such kernel.
// Kernels that are compiled for speed, see Reducer.
const void* find_all_reduce(ReducerId id, KernelShape shape, int ranks);
const void* find_reduce_scatter(ReducerId id, KernelShape shape, int ranks);
const void* find_reduce(ReducerId id, KernelShape shape, int ranks);
// Kernels that are compiled for size, for any of the three collectives.
const void* find_cold_floats(ReducerId id, KernelShape shape, int ranks);
const void* find_cold_small_floats(ReducerId id, KernelShape shape, int ranks);
const void* find_cold_integers(ReducerId id, KernelShape shape, int ranks);
const void* find_move(Collective collective, KernelShape shape, int ranks);
const void* find_exchange(MessageKind kind);
// The kernel of a put, of a wait, or of a signal or store.
const void* find_rma(KernelRmaOperation::Kind kind);
const void* find_all_to_all_v_dynamic(MessageKind kind);
const void* find_reduce_scatter_quantized(PacketProtocol protocol, int ranks);
// The kernels of a HostRing, which take a HostRingCall.
const void* find_post();
const void* find_wait_for_command();
const void* find_poison_output();

}  // namespace torch::comms::ctran::kernels
