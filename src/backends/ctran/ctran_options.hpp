#pragma once

#include <string>

#include <torchcomms/options.hpp>

#include "backends/ctran/selection_inputs.hpp"
#include "ctran/team/kernel_selection.hpp"

// Parsers of the hints that begin with "ctran::". The text "None" means that a hint is unset.
// Throws: CommError(kInvalidArgument), without context, naming the hint, its value and the allowed
// values.
namespace torch::comms::ctran {

// Validates all hints that are given at creation. Returns: the algorithm requests in them.
AlgorithmRequests parse_and_validate_hints(const Hints& hints);

// Parses `ctran::transport`: auto, shm or tcp.
LinkPolicy parse_link_policy(const Hints& hints);

// Parses `ctran::interface`. Returns: an interface name or address for TCP; "" if unset.
std::string parse_interface(const Hints& hints);

// Parses `ctran::host_id`, or TORCHCOMM_CTRAN_HOST_ID if the hint is unset. Returns: the name of
// this rank's host; "" if unset.
std::string parse_host_id(const Hints& hints);

// Parses `ctran::single_copy`, a boolean. Returns: true if unset.
bool parse_single_copy(const Hints& hints);

// Parses `ctran::tuning_file`. Returns: the default file if unset. Only the file of rank 0 is used.
TuningFile parse_tuning_file(const Hints& hints);

// Parses `ctran::kernel_algorithm`, or TORCHCOMM_CTRAN_KERNEL_ALGORITHM if the hint is unset; see
// parse_kernel_preference() for the values. Kernels ignore the preference for calls that they
// cannot run with it.
KernelPreference parse_kernel_preference(const Hints& hints);
// Parses the hint of one call. Returns: `fallback` if the call does not set it.
KernelPreference parse_call_kernel_preference(const Hints& hints, const KernelPreference& fallback);

// Parses `ctran::algorithm`: "ring", or a comma-separated list of "<operation>:<algorithm>";
// `ctran::chunk_bytes`: a number of bytes, 0 for a single chunk; and `batch_invariant`: a boolean.
// A plain name applies to all operations that have such an algorithm. Settings that are not named
// are taken from `fallback`.
AlgorithmRequests parse_algorithm_requests(const Hints& hints,
                                           const AlgorithmRequests& fallback = {});

// Parses the hints of one call of `operation`. A plain name must be an algorithm of that operation.
AlgorithmRequests parse_call_algorithm_requests(const Hints& hints, schedule::Operation operation,
                                                const AlgorithmRequests& fallback);

}  // namespace torch::comms::ctran
