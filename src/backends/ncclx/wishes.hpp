#pragma once

#include <array>
#include <optional>
#include <string>

#include <torchcomms/options.hpp>

#include "ctran/device/kernel_selection.hpp"
#include "ctran/select/tuning.hpp"

// What users say of backend ncclx. Throws CommError without context.
namespace torch::comms::ncclx {

inline constexpr size_t kCollectives =
    static_cast<size_t>(ctran::kernels::Collective::kBarrier) + 1;

// Who runs each collective.
using Wishes = std::array<ctran::KernelPreference, kCollectives>;

// Of a communicator: hint ncclx::algorithm, else the environment. kInvalidArgument.
ctran::KernelPreference wish_of(const Hints& hints);
// The tuning file whose kernels count, where this is rank 0: hint ncclx::tuning_file, else
// the usual one.
ctran::TuningFile tuning_file_of(const Hints& hints);
// For hint batch_invariant, which kernels keep to: of those that add, kernels; where the library
// was asked for, kInvalidArgument.
void keep_to_kernels(Wishes& wishes);
bool adds(ctran::kernels::Collective collective) noexcept;
// Of one call; nothing where it says nothing. kInvalidArgument.
std::optional<ctran::KernelPreference> wish_of_call(const Hints& hints);

// Puts what ncclx calls otherwise into the words that all backends of the family have:
// `ncclx::<x>` of the library's configuration, and the older spelling of the stream's priority.
// kInvalidArgument for keys that are the library's own.
void translate(CommOptions& options);

// set_config(): keys `allreduceAlgo`, `allgatherAlgo` and the like; all or none are changed.
// kUnsupported for other keys, kInvalidArgument for other values, both naming what there is.
void change(Wishes& wishes, const Hints& config);

}  // namespace torch::comms::ncclx
