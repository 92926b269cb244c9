#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

// The header defines an inline constant that some files that include it do not use.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-variable"
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#pragma GCC diagnostic pop

// torch's Gloo process group, and the functions that differ between the supported torch versions.
// The compiler selects the function that exists, so no version number is compared.
namespace torch::comms::gloo {

using Native = c10d::ProcessGroupGloo;
using NativePtr = c10::intrusive_ptr<Native>;
using NativeWorkPtr = c10::intrusive_ptr<c10d::Work>;

// Passes a collective to torch, which runs it on a thread of its own, so `call` does not block.
// Only one thread of the process is in `call` at a time: torch 2.11 looks up and adds a group in
// its recorder's list without a lock.
inline std::mutex enqueue_mutex;
template <class Call>
auto enqueue(const Call& call) {
  const std::lock_guard lock(enqueue_mutex);
  return call();
}

// Gathers every rank's `input` into `output`, in rank order.
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

// Exchanges elements of the flat tensors. The counts are one per rank, in elements; two empty lists
// mean equal parts.
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
