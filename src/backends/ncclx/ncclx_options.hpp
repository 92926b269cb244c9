#pragma once

#include <array>
#include <optional>
#include <string>

#include <torchcomms/options.hpp>

#include "ctran/selection/tuning.hpp"
#include "ctran/team/kernel_selection.hpp"

// The options of backend ncclx. The functions throw CommError without context.
namespace torch::comms::ncclx {

inline constexpr size_t kCollectiveCount =
    static_cast<size_t>(ctran::kernels::Collective::kBarrier) + 1;

// For each collective: whether kernels or the library run it.
using NcclxKernelPreferences = std::array<ctran::KernelPreference, kCollectiveCount>;

// Parses hint ncclx::algorithm of a communicator, else the environment.
// Throws: kInvalidArgument.
ctran::KernelPreference parse_kernel_preference(const Hints& hints);
// Returns: the tuning file that applies if this is rank 0: hint ncclx::tuning_file, else the
// default file.
ctran::TuningFile parse_tuning_file(const Hints& hints);
// Implements hint batch_invariant, which only kernels support: kernels run all reductions.
// Throws: kInvalidArgument if the library was requested for a reduction.
void restrict_to_kernels(NcclxKernelPreferences& preferences);
bool is_reduction(ctran::kernels::Collective collective) noexcept;
// Parses hint ncclx::algorithm of one call.
// Returns: nothing if the hint is not set.
// Throws: kInvalidArgument.
std::optional<ctran::KernelPreference> parse_call_kernel_preference(const Hints& hints);

// Converts hints that ncclx spells differently to the names that all backends over NCCL use:
// `ncclx::<x>` of the library's configuration, and the older spelling of the stream's priority.
// Throws: kInvalidArgument for keys that the library sets itself.
void normalize_hints(CommOptions& options);

// Implements set_config(): keys are `allreduceAlgo`, `allgatherAlgo` and so on. All keys are
// applied, or none.
// Throws: kUnsupported for other keys, kInvalidArgument for other values; both list what is
// allowed.
void apply_config(NcclxKernelPreferences& preferences, const Hints& config);

}  // namespace torch::comms::ncclx
