#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "ctran/kernels/library.hpp"

// When kernels of ours run a collective in the place of a vendor's library.
namespace torch::comms::ctran {

// A row of the table: up to how many bytes they are faster, of the largest buffer of a rank.
struct Preference {
  kernels::Collective collective;
  int32_t ranks_most;
  size_t bytes_most;
};
// The first row that fits counts.
std::span<const Preference> preferences() noexcept;
bool prefers(kernels::Collective collective, int32_t ranks, size_t bytes) noexcept;

// What a user asks for.
struct Wish {
  enum class Who : uint8_t {
    kAutomatic,  // the table decides
    kVendor,     // the library, always
    kKernels,    // kernels, wherever they take it
  };
  Who who = Who::kAutomatic;
  kernels::Algorithm algorithm = kernels::Algorithm::kAutomatic;  // of kKernels

  bool operator==(const Wish&) const = default;
};
// "auto", "nccl", "kernels", or an algorithm's name. Throws CommError(kInvalidArgument) naming
// `knob`, the text and what is allowed.
Wish parse_wish(std::string_view knob, std::string_view text);

// "one_shot_ll"; "automatic".
std::string_view name_of(kernels::Algorithm algorithm) noexcept;
// torch's word for it: "all_reduce", "all_gather_single".
std::string_view name_of(kernels::Collective collective) noexcept;

}  // namespace torch::comms::ctran
