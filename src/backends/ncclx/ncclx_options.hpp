#pragma once

#include <array>
#include <optional>
#include <string>

#include <torchcomms/options.hpp>

#include "ctran/selection/tuning.hpp"
#include "ctran/team/kernel_selection.hpp"

// What users say of backend ncclx. Throws CommError without context.
namespace torch::comms::ncclx {

inline constexpr size_t kCollectiveCount =
    static_cast<size_t>(ctran::kernels::Collective::kBarrier) + 1;

// Who runs each collective.
using NcclxKernelPreferences = std::array<ctran::KernelPreference, kCollectiveCount>;

// Of a communicator: hint ncclx::algorithm, else the environment. kInvalidArgument.
ctran::KernelPreference parse_kernel_preference(const Hints& hints);
// The tuning file whose kernels count, where this is rank 0: hint ncclx::tuning_file, else
// the usual one.
ctran::TuningFile parse_tuning_file(const Hints& hints);
// For hint batch_invariant, which kernels keep to: of those that add, kernels; where the library
// was asked for, kInvalidArgument.
void restrict_to_kernels(NcclxKernelPreferences& wishes);
bool is_reduction(ctran::kernels::Collective collective) noexcept;
// Of one call; nothing where it says nothing. kInvalidArgument.
std::optional<ctran::KernelPreference> parse_call_kernel_preference(const Hints& hints);

// Puts what ncclx calls otherwise into the words that all backends of the family have:
// `ncclx::<x>` of the library's configuration, and the older spelling of the stream's priority.
// kInvalidArgument for keys that are the library's own.
void normalize_hints(CommOptions& options);

// set_config(): keys `allreduceAlgo`, `allgatherAlgo` and the like; all or none are changed.
// kUnsupported for other keys, kInvalidArgument for other values, both naming what there is.
void apply_config(NcclxKernelPreferences& wishes, const Hints& config);

}  // namespace torch::comms::ncclx
