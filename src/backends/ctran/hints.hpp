#pragma once

#include <string>

#include <torchcomms/options.hpp>

#include "backends/ctran/known.hpp"
#include "ctran/device/kernel_selection.hpp"

// The hints that begin with "ctran::". Throws CommError(kInvalidArgument), without context, naming
// hint, value and what is allowed. The text "None" means unset.
namespace torch::comms::ctran {

// Refuses what is wrong in any of those that are given at creation; returns the wishes in them.
Wishes require_right(const Hints& hints);

// `ctran::transport`: auto, shm or tcp.
LinkPolicy links_wished(const Hints& hints);

// `ctran::interface`: name or address for TCP; "" where unset.
std::string interface_wished(const Hints& hints);

// `ctran::host_id`, else TORCHCOMM_CTRAN_HOST_ID: what this rank's host is called; "" where unset.
std::string host_wished(const Hints& hints);

// `ctran::single_copy`: a boolean, true where unset.
bool single_copy_wished(const Hints& hints);

// `ctran::tuning_file`, else the usual one: the file that counts where this is rank 0.
TuningFile tuning_file_wished(const Hints& hints);

// `ctran::kernel_algorithm`, of operations that kernels run, else
// TORCHCOMM_CTRAN_KERNEL_ALGORITHM; see parse_kernel_preference(). Where they cannot run one so,
// they choose.
KernelPreference kernel_wish_of(const Hints& hints);
// The same of a call; `otherwise` where it says nothing.
KernelPreference kernel_wish_of_call(const Hints& hints, const KernelPreference& otherwise);

// `ctran::algorithm`: "ring", or a comma list of "<operation>:<algorithm>"; `ctran::chunk_bytes`: a
// number of bytes, 0 for everything at once; `batch_invariant`: a boolean. A plain name goes to all
// operations that have such an algorithm. What is not named is taken from `fallback`.
Wishes wishes_of(const Hints& hints, const Wishes& fallback = {});

// The same for one call of `operation`, which must have a plain name's algorithm.
Wishes wishes_of_call(const Hints& hints, schedule::Operation operation, const Wishes& fallback);

}  // namespace torch::comms::ctran
