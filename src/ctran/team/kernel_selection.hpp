#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/kernels/host/selection_rows.hpp"

// When kernels of ours run a collective in the place of a vendor's library, and by which algorithm.
namespace torch::comms::ctran {

// Where nothing was measured: the sizes up to which kernels are faster. What no row fits is for the
// library.
std::span<const kernels::SelectionRow> default_rows() noexcept;
bool prefers_kernels(kernels::Collective collective, int32_t ranks, size_t bytes) noexcept;

// What was measured for a team: rows of a tuning file that are about its GPU and its number of
// ranks. Where none fits, default_rows() and the library of kernels decide.
class MeasuredRows {
 public:
  MeasuredRows() = default;
  explicit MeasuredRows(std::vector<kernels::SelectionRow> rows);

  // Whether it matters to some row of the collective that an operation is captured.
  bool has_modes(kernels::Collective collective) const noexcept;
  // Whether some row is about registered tensors alone.
  bool has_registered() const noexcept { return has_registered_; }
  // See kernels::find().
  template <class Accepts>
  const kernels::SelectionRow* find(const kernels::SelectionKey& question,
                                    const Accepts& accepts) const {
    return kernels::find(std::span<const kernels::SelectionRow>(rows_), question, accepts);
  }
  bool empty() const noexcept { return rows_.empty(); }

 private:
  std::vector<kernels::SelectionRow> rows_;
  bool has_registered_ = false;
};

// What a user asks for.
struct KernelPreference {
  enum class KernelProvider : uint8_t {
    kAutomatic,  // the table decides
    kVendor,     // the library, always
    kKernels,    // kernels, wherever they take it
  };
  KernelProvider provider = KernelProvider::kAutomatic;
  kernels::KernelAlgorithm algorithm = kernels::KernelAlgorithm::kAutomatic;  // of kKernels
  int blocks = 0;  // at most; 0: as the library of kernels thinks best

  bool operator==(const KernelPreference&) const = default;
};
// "auto", "nccl", "kernels", or an algorithm's name, all but "nccl" perhaps with the blocks that
// kernels may have: "one_shot_ll/64", "auto/16".
// CTRAN's own names mean the nearest of ours: `ctran` and `ctgraph` kernels, `ctdirect`
// one_shot_line, `ctring` and `ctpipeline` two_shot_line, `ctrd` one_shot_ll, `ctp2p` nccl.
// `has_library`: else "nccl" and "kernels" mean nothing, and CTRAN's names for them "auto". Throws
// CommError(kInvalidArgument) naming `knob`, the text and what is allowed.
KernelPreference parse_kernel_preference(std::string_view knob, std::string_view text,
                                         bool has_library = true);
bool is_ctran_algorithm(std::string_view name) noexcept;

}  // namespace torch::comms::ctran
