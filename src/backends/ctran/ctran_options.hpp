#pragma once

#include <string>

#include <torchcomms/options.hpp>

#include "backends/ctran/selection_inputs.hpp"
#include "ctran/team/kernel_selection.hpp"

// The hints that begin with "ctran::". Throws CommError(kInvalidArgument), without context, naming
// hint, value and what is allowed. The text "None" means unset.
namespace torch::comms::ctran {

// Refuses what is wrong in any of those that are given at creation; returns the wishes in them.
AlgorithmRequests parse_and_validate_hints(const Hints& hints);

// `ctran::transport`: auto, shm or tcp.
LinkPolicy parse_link_policy(const Hints& hints);

// `ctran::interface`: name or address for TCP; "" where unset.
std::string parse_interface(const Hints& hints);

// `ctran::host_id`, else TORCHCOMM_CTRAN_HOST_ID: what this rank's host is called; "" where unset.
std::string parse_host_id(const Hints& hints);

// `ctran::single_copy`: a boolean, true where unset.
bool parse_single_copy(const Hints& hints);

// `ctran::tuning_file`, else the usual one: the file that counts where this is rank 0.
TuningFile parse_tuning_file(const Hints& hints);

// `ctran::kernel_algorithm`, of operations that kernels run, else
// TORCHCOMM_CTRAN_KERNEL_ALGORITHM; see parse_kernel_preference(). Where they cannot run one so,
// they choose.
KernelPreference parse_kernel_preference(const Hints& hints);
// The same of a call; `otherwise` where it says nothing.
KernelPreference parse_call_kernel_preference(const Hints& hints,
                                              const KernelPreference& otherwise);

// `ctran::algorithm`: "ring", or a comma list of "<operation>:<algorithm>"; `ctran::chunk_bytes`: a
// number of bytes, 0 for everything at once; `batch_invariant`: a boolean. A plain name goes to all
// operations that have such an algorithm. What is not named is taken from `fallback`.
AlgorithmRequests parse_algorithm_requests(const Hints& hints,
                                           const AlgorithmRequests& fallback = {});

// The same for one call of `operation`, which must have a plain name's algorithm.
AlgorithmRequests parse_call_algorithm_requests(const Hints& hints, schedule::Operation operation,
                                                const AlgorithmRequests& fallback);

}  // namespace torch::comms::ctran
