#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

// One unused inline constant in it is not used by everybody who includes it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-variable"
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#pragma GCC diagnostic pop

// torch's Gloo process group, and what differs in it between the torch versions that we build
// against: the compiler finds out which names there are, so that no version number has to be known.
namespace torch::comms::gloo {

using Native = c10d::ProcessGroupGloo;
using NativePtr = c10::intrusive_ptr<Native>;
using NativeWorkPtr = c10::intrusive_ptr<c10d::Work>;

// Hands a collective over to torch, which does it on a thread of its own: `call` does not block.
// One at a time in the process: torch 2.11 looks a group up in its recorder's list, and adds it,
// without a lock.
inline std::mutex enqueue_mutex;
template <class Call>
auto enqueue(const Call& call) {
  const std::lock_guard lock(enqueue_mutex);
  return call();
}

// `output` holds every rank's `input`, in rank order.
template <class Group>
NativeWorkPtr all_gather_flat(Group& group, at::Tensor output, at::Tensor input,
                              const c10d::AllgatherOptions& options) {
  return enqueue([&] {
    if constexpr (requires { group.all_gather_single(output, input, options); })
      return group.all_gather_single(output, input, options);
    else
      return group._allgather_base(output, input, options);
  });
}

// Counts are elements of the flat tensors, one a rank; both empty: equal parts.
template <class Group>
NativeWorkPtr all_to_all_flat(Group& group, at::Tensor output, at::Tensor input,
                              std::vector<int64_t> output_counts, std::vector<int64_t> input_counts,
                              const c10d::AllToAllOptions& options) {
  return enqueue([&] {
    if constexpr (requires {
                    group.all_to_all_single(output, input, output_counts, input_counts, options);
                  })
      return group.all_to_all_single(output, input, output_counts, input_counts, options);
    else
      return group.alltoall_base(output, input, output_counts, input_counts, options);
  });
}

}  // namespace torch::comms::gloo
