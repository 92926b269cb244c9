#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/device_kernels/kernel_backend.hpp"
#include "backends/nccl/api/vendor_backends.hpp"
#include "backends/ncclx/allocator_segments.hpp"
#include "backends/ncclx/ncclx_options.hpp"
#include "ctran/selection/shared_tuning.hpp"
#include "transport/nvl/symmetric_memory.hpp"

namespace torch::comms {

// NCCL, and kernels of ours in its place where they are faster: the ranks of one host map memory on
// each other's GPUs, and run collectives through it (ctran/device). An operation that the kernels
// run has the order, the limit, the work and the captures of every other one of the communicator;
// when a kernel is stopped, the communicator ends. Where the ranks cannot map each other's memory
// it is NCCL alone, and links() says why.
//
// Which operations the kernels run is the same on all ranks: it depends on the collective, its
// bytes and dtype, and on what users say (wishes.hpp), which they say alike on all ranks.
class TC_API TorchCommNCCLX final
    : public VendorBackend<TorchCommNCCLX, nccl::kNcclx, KernelBackend> {
 public:
  explicit TorchCommNCCLX(std::string backend = "ncclx");
  ~TorchCommNCCLX() override;
  void finalize() override;
  WorkPtr reconfigure(const ReconfigureOptions& options) override;

  // The child is called "<this one>::split::<smallest rank>_<name>_<how many splits before>", and
  // meets for its kernels at its first collective.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  std::vector<std::string> links() const override;

  // What only the kernels can, so they throw CommError(kUnsupported), which says why, where there
  // are none; one rank alone needs none. kInvalidArgument: a wrong tensor, before anything is sent.
  // Errors that come later end the communicator.

  // Parts of `input` to all ranks and of all ranks into `output`, whose sizes are `input_counts`
  // and `output_counts`: of elements, by rank, int64 on the device. The host does not look at them:
  // each replay of a graph has what is there then. Counts that do not fit a tensor move nothing,
  // and are an error: of kind kInvalidArgument here, kSizeMismatch on the others, as is a part of
  // which two ranks say different sizes. One rank alone copies as much as both counts and both
  // tensors have.
  WorkPtr device_alltoallv_single(at::Tensor& output, const at::Tensor& input,
                                  const at::Tensor& output_counts, const at::Tensor& input_counts,
                                  bool async_op);
  // As reduce_scatter_single, of float32, SUM or AVG; what goes to another rank is rounded to
  // bfloat16 by chance, right on average, and sums are of float32. `seed`: an int64 on the device,
  // read as the operation runs; the same seeds give the same bits.
  WorkPtr reduce_scatter_quantized(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                   const at::Tensor& seed, bool async_op);

  using Dump = std::map<std::string, std::string>;
  // What is known of it, in words: commHash, rank, nRanks and more.
  Dump comm_dump() const;
  // Of all that are connected in this process, by commHash; "GlobalInfo" is of the process. The
  // hint comm_dump::requestFields is a list of the fields wanted, with ';' between; those of the
  // process begin with "GlobalInfo::".
  static std::map<std::string, Dump> comm_dump_all(const Hints& hints);
  // Which collectives kernels run where nobody says otherwise: with how many ranks at most, and up
  // to how many bytes of the largest buffer of a rank. The first row that fits counts.
  using KernelRow = std::tuple<std::string, int, uint64_t>;
  static std::vector<KernelRow> kernel_table();
  // See ncclx::apply_config().
  void set_config(const Hints& config);

 private:
  void parse_options(CommOptions& options) override;
  bool accepts_legacy_hints() const override { return true; }
  bool prepare(const Rendezvous& met, const nccl::NcclDevice& device) override;
  bool can_skip_prepare() const override { return false; }
  void before_collective() override;
  void on_connected() override;
  // Whether comm_dump_all() of any thread tells of it: while nothing of what that reads changes.
  void set_dump_visible(bool known) const;
  KernelDecision choose(ctran::kernels::KernelCall& call,
                        const SelectionQuery& asked) const override;
  int max_blocks(ctran::kernels::Collective collective,
                 const OperationOptions& options) const override;
  void require_library_allowed(ctran::kernels::Collective collective,
                               const OperationOptions& options) const override;
  Fallback fallback_for(ctran::kernels::Collective collective) const override;
  std::vector<std::string> all_gather_strings(const std::string& words,
                                              const nccl::NcclCall& now) override;
  std::string kernels_unavailable_reason() const override { return kernels_unavailable_reason_; }
  std::string set_up_single_rank() override;
  ctran::KernelPreference kernel_preference_for(ctran::kernels::Collective collective,
                                                const OperationOptions& options) const;
  // All ranks meet for their kernels, once a connection. Collective.
  void connect_kernels(int rank, int size, const nccl::NcclDevice& device,
                       const transport::nvl::AllGatherStrings& exchange);
  void connect_kernels_by_all_gather();
  void before_operation(const nccl::NcclCall& call) override;
  // False: one rank alone. Throws kUnsupported.
  bool needs_kernels(const Context& context);
  // Of an operation of one rank, which is on the current stream by now.
  WorkPtr completed_on_stream(const nccl::NcclCall& now, const at::Tensor& output);

  ncclx::NcclxKernelPreferences kernel_preferences_{};
  ctran::TuningFile tuning_file_;
  std::shared_ptr<const ctran::SharedTuning>
      shared_tuning_;  // of this connection, or the one it is a split of
  bool batch_invariant_ = false;
  ctran::DeviceTeam::WorkspaceExtent workspace_extent_ = ctran::DeviceTeam::WorkspaceExtent::kFull;
  bool has_tried_kernels_ = false;
  std::string kernels_unavailable_reason_ = "the ranks meet for kernels at the first collective";
  int split_count_ = 0;
  ncclx::TrackedSegments tracked_segments_;
  bool has_logged_refusal_ = false;  // of the library, to register one of them
};

}  // namespace torch::comms
