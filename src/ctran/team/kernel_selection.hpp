#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/kernels/host/selection_rows.hpp"

// Decides when kernels of this project run a collective instead of a vendor's library, and by which
// algorithm.
namespace torch::comms::ctran {

// The defaults where nothing was measured: the sizes up to which kernels are faster. A vendor's
// library runs what no row matches.
// prefers_kernels() returns whether a default row matches. `bytes`: of the largest buffer of a
// rank.
std::span<const kernels::SelectionRow> default_rows() noexcept;
bool prefers_kernels(kernels::Collective collective, int32_t ranks, size_t bytes) noexcept;

// What was measured for a team: the rows of a tuning file for its GPU and its number of ranks. If
// none matches, default_rows() and the kernel library decide.
class MeasuredRows {
 public:
  MeasuredRows() = default;
  explicit MeasuredRows(std::vector<kernels::SelectionRow> rows);

  // Returns whether some row of the collective depends on whether an operation is captured.
  bool has_modes(kernels::Collective collective) const noexcept;
  // Returns whether some row is for registered tensors only.
  bool has_registered() const noexcept { return has_registered_; }
  // Looks up the first row that matches: see kernels::find().
  // Lifetime: the row is valid as long as this object.
  template <class Accepts>
  const kernels::SelectionRow* find(const kernels::SelectionKey& key,
                                    const Accepts& accepts) const {
    return kernels::find(std::span<const kernels::SelectionRow>(rows_), key, accepts);
  }
  bool empty() const noexcept { return rows_.empty(); }

 private:
  std::vector<kernels::SelectionRow> rows_;
  bool has_registered_ = false;
};

// What a user requests.
struct KernelPreference {
  enum class KernelProvider : uint8_t {
    kAutomatic,  // the table decides
    kVendor,     // always the vendor's library
    kKernels,    // kernels, for all calls that they accept
  };
  KernelProvider provider = KernelProvider::kAutomatic;
  kernels::KernelAlgorithm algorithm = kernels::KernelAlgorithm::kAutomatic;  // of kKernels
  int blocks = 0;  // at most; 0: chosen by the kernel library

  bool operator==(const KernelPreference&) const = default;
};
// Parses "auto", "nccl", "kernels", or an algorithm's name. All but "nccl" may be followed by the
// most blocks that kernels may have, 1 to 1024: "one_shot_ll/64", "auto/16".
// CTRAN's names stand for the nearest of ours: `ctran` and `ctgraph` for kernels, `ctdirect` for
// one_shot_line, `ctring` and `ctpipeline` for two_shot_line, `ctrd` for one_shot_ll, `ctp2p` for
// nccl.
// `has_library`: if false, "nccl" and "kernels" are not allowed, and CTRAN's names for them mean
// "auto".
// Throws: CommError(kInvalidArgument), which names `setting`, the text and what is allowed.
KernelPreference parse_kernel_preference(std::string_view setting, std::string_view text,
                                         bool has_library = true);
// Returns whether this is one of the names of CTRAN above.
bool is_ctran_algorithm(std::string_view name) noexcept;

}  // namespace torch::comms::ctran
