#include "standin/kernels/one_sided.hpp"

#include <cstring>

#include "ctran/kernels/messages/rma.hpp"

namespace torch::comms::standin {

void run(Launch& launch, const kernels::KernelRmaOperation& step) {
  using Kind = kernels::KernelRmaOperation::Kind;
  if (!launch.goes_on()) return;
  const auto peer = static_cast<size_t>(step.peer), rank = static_cast<size_t>(launch.rank());
  if (step.kind == Kind::kPut) {
    std::memcpy(step.into, step.from, step.size_bytes);
  } else if (step.kind == Kind::kStore) {
    std::atomic_ref(kernels::slots_of(step.there)[step.slot]).store(step.value);
  } else if (step.kind == Kind::kSignal) {
    std::atomic_ref(step.there->received[rank]).store(++step.own->sent[peer]);
  } else {
    const bool counts = step.kind == Kind::kWaitSignal;
    std::atomic_ref word(counts ? step.own->received[peer]
                                : kernels::slots_of(step.own)[step.slot]);
    const uint64_t wanted =
        counts ? std::atomic_ref(step.own->awaited[peer]).fetch_add(1) + 1 : step.value;
    const auto met = [&] { return kernels::is_satisfied(step, word.load(), wanted); };
    launch.await(met, counts ? step.peer : -1);
  }
}

}  // namespace torch::comms::standin
