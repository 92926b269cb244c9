#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/kernels/kernels_backend.hpp"
#include "backends/nccl/vendors.hpp"
#include "backends/ncclx/wishes.hpp"
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
    : public OfVendor<TorchCommNCCLX, nccl::kNcclx, TorchCommKernels> {
 public:
  explicit TorchCommNCCLX(std::string backend = "ncclx");
  ~TorchCommNCCLX() override;

  // The child is called "<this one>::split::<smallest rank>_<name>_<how many splits before>", and
  // meets for its kernels at its first collective.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  std::vector<std::string> links() const override;

  using Dump = std::map<std::string, std::string>;
  // What is known of it, in words: commHash, rank, nRanks and more.
  Dump comm_dump() const;
  // Of all that there are in this process, by commHash; "GlobalInfo" is of the process. The hint
  // comm_dump::requestFields is a list of the fields wanted, with ';' between; those of the process
  // begin with "GlobalInfo::".
  static std::map<std::string, Dump> comm_dump_all(const Hints& hints);
  // Which collectives kernels run where nobody says otherwise: with how many ranks at most, and up
  // to how many bytes of the largest buffer of a rank. The first row that fits counts.
  using KernelRow = std::tuple<std::string, int, uint64_t>;
  static std::vector<KernelRow> kernel_table();
  // See ncclx::change().
  void set_config(const Hints& config);

 private:
  void read(CommOptions& options) override;
  bool prepare(const Rendezvous& met, const nccl::Device& device) override;
  void before_collective() override;
  bool is_taken(OpName op, ctran::kernels::Call& call, size_t bytes,
                const OperationOptions& options) const override;
  Else otherwise(ctran::kernels::Collective collective) const override;
  std::vector<std::string> tell_all(const std::string& words) override;
  std::string why_no_kernels() const override { return why_none_; }
  ctran::Wish wish_for(ctran::kernels::Collective collective,
                       const OperationOptions& options) const;
  // All ranks meet for their kernels, once a connection. Collective.
  void meet(int rank, int size, const nccl::Device& device,
            const transport::nvl::Exchange& exchange);
  void meet_by_gathering();
  bool is_capturing() const;

  ncclx::Wishes wishes_{};
  bool has_met_ = false;
  std::string why_none_ = "the ranks meet for kernels at the first collective";
  int splits_ = 0;
};

}  // namespace torch::comms
