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

// The backend over NCCL that uses kernels of torchcomms where they are faster. The ranks of one
// host map memory on each other's GPUs and run collectives through it (ctran/team). An operation
// that kernels run has the same order, timeout, work and graph captures as every other operation of
// the communicator. When a kernel fails, the communicator is aborted. If the ranks cannot map each
// other's memory, NCCL runs everything, and links() says why.
//
// All ranks decide the same for each operation whether kernels run it. The decision depends on the
// collective, its bytes and dtype, and on options (ncclx_options.hpp), which must be equal on all
// ranks.
class TC_API TorchCommNCCLX final
    : public VendorBackend<TorchCommNCCLX, nccl::kNcclx, KernelBackend> {
 public:
  explicit TorchCommNCCLX(std::string backend = "ncclx");
  ~TorchCommNCCLX() override;
  void finalize() override;
  WorkPtr reconfigure(const ReconfigureOptions& options) override;

  // The child is named "<this name>::split::<smallest rank>_<name>_<number of splits before>". It
  // sets up its kernels at its first collective.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  std::vector<std::string> links() const override;

  // The operations below need kernels.
  // Throws: CommError: kUnsupported with the reason if there are no kernels, which one rank alone
  // does not need; kInvalidArgument for a wrong tensor, before anything is sent. Later errors abort
  // the communicator.

  // Sends parts of `input` to all ranks and receives their parts into `output`. `input_counts` and
  // `output_counts` are the element counts by rank, int64 on the device. The host does not read
  // them: each replay of a graph uses the counts at that time. Counts that do not fit a tensor move
  // nothing and are an error: kInvalidArgument on this rank, kMismatch on its peers. Counts on
  // which two ranks disagree are a kMismatch, too. One rank alone copies as much as both counts and
  // both tensors allow.
  WorkPtr device_alltoallv_single(at::Tensor& output, const at::Tensor& input,
                                  const at::Tensor& output_counts, const at::Tensor& input_counts,
                                  bool async_op);
  // Runs reduce_scatter_single() on float32 with SUM or AVG. Data for other ranks is rounded to
  // bfloat16 stochastically, which is right on average; sums are computed in float32. `seed`: an
  // int64 on the device, which is read as the operation runs; equal seeds give equal bits.
  WorkPtr reduce_scatter_quantized(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                   const at::Tensor& seed, bool async_op);

  using Dump = std::map<std::string, std::string>;
  // Returns: the communicator's state as text, by field: commHash, rank, nRanks and more.
  Dump comm_dump() const;
  // Returns: the dumps of all connected communicators of this process, by commHash; "GlobalInfo" is
  // about the process. Hint comm_dump::requestFields selects fields, separated by ';'. Fields of
  // the process begin with "GlobalInfo::".
  // Threads: any.
  static std::map<std::string, Dump> comm_dump_all(const Hints& hints);
  // Returns: which collectives kernels run by default: the collective, the most ranks, and the most
  // bytes of a rank's largest buffer. The first row that fits applies.
  using KernelRow = std::tuple<std::string, int, uint64_t>;
  static std::vector<KernelRow> kernel_table();
  // See ncclx::apply_config().
  void set_config(const Hints& config);

 private:
  void parse_options(CommOptions& options) override;
  bool accepts_legacy_hints() const override { return true; }
  bool prepare(const Rendezvous& rendezvous, const nccl::NcclDevice& device) override;
  bool can_skip_prepare() const override { return false; }
  void before_collective() override;
  void on_connected() override;
  // Sets whether comm_dump_all() includes this communicator. It must not while data that
  // comm_dump() reads changes.
  void set_dump_visible(bool visible) const;
  KernelDecision choose(ctran::kernels::KernelCall& call,
                        const SelectionQuery& query) const override;
  int max_blocks(ctran::kernels::Collective collective,
                 const OperationOptions& options) const override;
  void require_library_allowed(ctran::kernels::Collective collective,
                               const OperationOptions& options) const override;
  Fallback fallback_for(ctran::kernels::Collective collective) const override;
  std::vector<std::string> all_gather_strings(const std::string& text,
                                              const nccl::NcclCall& now) override;
  std::string kernels_unavailable_reason() const override { return kernels_unavailable_reason_; }
  std::string set_up_single_rank() override;
  ctran::KernelPreference kernel_preference_for(ctran::kernels::Collective collective,
                                                const OperationOptions& options) const;
  // Sets up the kernels of all ranks, once for each connection. Collective.
  void connect_kernels(int rank, int size, const nccl::NcclDevice& device,
                       const transport::nvl::AllGatherStrings& exchange);
  void connect_kernels_by_all_gather();
  void before_operation(const nccl::NcclCall& call) override;
  // Returns: false for one rank alone, which needs no kernels.
  // Throws: CommError(kUnsupported) if there are no kernels.
  bool needs_kernels(const Context& context);
  // Returns: the work of an operation of one rank that is already enqueued on the current stream.
  WorkPtr completed_on_stream(const nccl::NcclCall& now, const at::Tensor& output);

  ncclx::NcclxKernelPreferences kernel_preferences_{};
  ctran::TuningFile tuning_file_;
  std::shared_ptr<const ctran::SharedTuning>
      shared_tuning_;  // of this connection, or of the parent of this split
  bool batch_invariant_ = false;
  ctran::DeviceTeam::WorkspaceExtent workspace_extent_ = ctran::DeviceTeam::WorkspaceExtent::kFull;
  bool has_tried_kernels_ = false;
  std::string kernels_unavailable_reason_ = "kernels are set up at the first collective";
  int split_count_ = 0;
  ncclx::TrackedSegments tracked_segments_;
  bool has_logged_refusal_ = false;  // the library refused to register a segment
};

}  // namespace torch::comms
