#pragma once

#include "ctran/kernels/protocol/params.hpp"
#include "ctran/kernels/protocol/portable.hpp"

// Prepares the launch of an operation on a window: pure functions of the operation.
namespace torch::comms::ctran::kernels {

constexpr bool is_wait(KernelRmaOperation::Kind kind) {
  return kind == KernelRmaOperation::Kind::kWaitSignal ||
         kind == KernelRmaOperation::Kind::kWaitSlot;
}

// Whether the operation makes sense on this rank.
constexpr bool is_valid(const TeamDescriptor& team, const KernelRmaOperation& step) {
  return step.peer >= 0 && step.peer < team.size && step.own != nullptr && step.there != nullptr &&
         (step.kind != KernelRmaOperation::Kind::kWaitSlot || step.peer == team.rank) &&
         (step.kind != KernelRmaOperation::Kind::kPut ||
          (step.from != nullptr && step.into != nullptr && step.size_bytes > 0));
}

// Threads of a put; each copies some vectors of 16 bytes.
inline constexpr int kPutThreads = 512, kMostPutBlocks = 64;
constexpr int put_blocks(uint64_t size_bytes) {
  constexpr uint64_t kOfBlock = uint64_t{kPutThreads} * 16 * 2;
  const uint64_t wanted = (size_bytes + kOfBlock - 1) / kOfBlock;
  return wanted < kMostPutBlocks ? static_cast<int>(wanted) : kMostPutBlocks;
}

TC_BOTH uint64_t* slots_of(WindowSignalWords* words) {
  return reinterpret_cast<uint64_t*>(words + 1);
}

// Whether `seen` satisfies a wait. Counts of signals only grow, also across a wrap.
constexpr bool is_satisfied(const KernelRmaOperation& step, uint64_t seen, uint64_t wanted) {
  if (step.kind == KernelRmaOperation::Kind::kWaitSignal)
    return static_cast<int64_t>(seen - wanted) >= 0;
  if (step.comparison == KernelSlotComparison::kEqual) return seen == wanted;
  return step.comparison == KernelSlotComparison::kAtLeast ? seen >= wanted : seen <= wanted;
}

struct KernelRmaParams : TeamView {
  KernelRmaOperation step;
};
KernelRmaParams params_of(const TeamDescriptor& team, const KernelRmaOperation& step);

}  // namespace torch::comms::ctran::kernels
