#pragma once

#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "ctran/kernels/messages/message_kind.hpp"
#include "ctran/kernels/protocol/layout.hpp"

// The kernels, by what they do. Each function is in a file of its own, which nvcc compiles beside
// the others.
namespace torch::comms::ctran::kernels {

struct KernelShape {
  PacketProtocol protocol;
  bool two_hops;
  // For calls that have nothing but whole vectors, which are neither scaled nor divided. To the
  // peers it is the same. It is a third of the code, of which a launch has to fetch every line
  // anew: an all_reduce of 1 KB of 4 H200 takes 3.1 us instead of 3.7.
  bool is_lean = false;
  bool operator==(const KernelShape&) const = default;
};

// Null where there is none.
// What is compiled for speed, see Reducer.
const void* find_all_reduce(ReducerId cell, KernelShape shape, int ranks);
const void* find_reduce_scatter(ReducerId cell, KernelShape shape, int ranks);
const void* find_reduce(ReducerId cell, KernelShape shape, int ranks);
// What is compiled for size, for any of the three.
const void* find_cold_floats(ReducerId cell, KernelShape shape, int ranks);
const void* find_cold_small_floats(ReducerId cell, KernelShape shape, int ranks);
const void* find_cold_integers(ReducerId cell, KernelShape shape, int ranks);
const void* find_move(Collective collective, KernelShape shape, int ranks);
const void* find_exchange(MessageKind kind);
// Of a put, of a wait, or of what gives words.
const void* find_rma(KernelRmaOperation::Kind kind);
const void* find_all_to_all_v_dynamic(MessageKind kind);
const void* find_reduce_scatter_quantized(PacketProtocol wire, int ranks);
// Of a HostRingCall.
const void* find_post();
const void* find_wait_for_command();
const void* find_poison_output();

}  // namespace torch::comms::ctran::kernels
