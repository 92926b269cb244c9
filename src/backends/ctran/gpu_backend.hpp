#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/device_kernels/kernel_backend.hpp"
#include "ctran/selection/shared_tuning.hpp"
#include "ctran/team/kernel_selection.hpp"
#include "transport/nvl/symmetric_memory.hpp"

namespace torch::comms::ctran {

// The operation for which the members of a communicator exchange strings.
struct ExchangePurpose {
  std::string_view name;  // name of the operation; static storage
  std::chrono::milliseconds timeout;
};

}  // namespace torch::comms::ctran

namespace torch::comms {

// The backend of ctran for GPU tensors if the members' GPUs map each other's memory. Kernels carry
// out all operations; no vendor library is loaded.
// Lifetime: TorchCommCtran creates this object for its own members and finalizes it.
class TC_API CtranGpuBackend final : public KernelBackend {
 public:
  // Either all members have a backend, or none has.
  struct GpuBackendResult {
    std::shared_ptr<CtranGpuBackend> backend;
    std::string unavailable_reason;  // equal on all ranks
  };
  // Functions by which the backend reaches its members outside of the device.
  struct GpuBackendCallbacks {
    // All-gathers one string of each member, by rank, while the members are connected.
    std::function<std::vector<std::string>(const std::string& text, const ctran::ExchangePurpose&)>
        all_gather_strings;
    // Returns: why operations in flight can never complete; see nccl::CollectiveKernels. Threads:
    // any.
    std::function<std::optional<CommError>(const Context&)> find_failed_peer;
    // Returns: a bit mask of the ranks whose devices no longer write to other ranks. Threads: any.
    std::function<uint32_t()> quiesced_ranks;
    // Returns: the error to raise for an operation's error, for example kStaleGeneration if that is
    // the cause.
    std::function<CommError(const CommError&)> explain;
    const ctran::SharedTuning& shared_tuning;  // rank 0's tuning; not retained
  };
  // Collective. `device` must satisfy is_supported_device(). Throws: CommError, and what
  // all_gather_strings throws.
  static GpuBackendResult make(int rank, const std::vector<int>& ranks, at::Device device,
                               const std::string& name, const CommOptions& options,
                               const GpuBackendCallbacks& links);
  // Returns: whether kernels can run on tensors of `device`: a GPU, or the CPU if the kernel
  // library is built for host memory.
  static bool is_supported_device(const at::Device& device);
  // Returns: the model of the device as in tuning files; "" for other devices.
  static std::string model_of(const at::Device& device);

  // Returns: an allocator of memory that the devices of peer ranks can map, for windows.
  // Throws: CommError(kUnsupported) if this process has no such device.
  static std::shared_ptr<c10::Allocator> make_mem_allocator();

  // Throws: CommError(kUnsupported). A split of the communicator creates a team of its own.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;
  Capabilities capabilities() const override;

 private:
  CtranGpuBackend(const GpuBackendCallbacks& links, const CommOptions& options);
  std::shared_ptr<NcclApiBackend> make_child() const override;
  KernelDecision choose(ctran::kernels::KernelCall& call,
                        const SelectionQuery& query) const override;
  int max_blocks(ctran::kernels::Collective collective,
                 const OperationOptions& options) const override;
  // Throws: CommError, because this backend has no library.
  void require_library_allowed(ctran::kernels::Collective collective,
                               const OperationOptions& options) const override;
  Fallback fallback_for(ctran::kernels::Collective collective) const override;
  ctran::KernelPreference kernel_preference_for(const OperationOptions& options) const;
  std::vector<std::string> all_gather_strings(const std::string& text,
                                              const nccl::NcclCall& now) override;
  std::string kernels_unavailable_reason() const override {
    return "the device's kernels have been released";
  }
  bool has_library() const override { return false; }
  CommError explain_error(const CommError& error) override { return explain_(error); }

  const decltype(GpuBackendCallbacks::all_gather_strings) all_gather_strings_;
  const std::function<CommError(const CommError&)> explain_;
  const ctran::KernelPreference kernel_preference_;
};

}  // namespace torch::comms
