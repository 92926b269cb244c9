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

// What the members of a communicator tell each other for.
struct ExchangePurpose {
  std::string_view name;  // of the operation; lives forever
  std::chrono::milliseconds timeout;
};

}  // namespace torch::comms::ctran

namespace torch::comms {

// The operations of backend ctran on a GPU's tensors, where the ranks' GPUs map each other's
// memory: by kernels alone, with no library of a vendor in the process. TorchCommCtran makes it for
// its own members, and ends it.
class TC_API CtranGpuBackend final : public KernelBackend {
 public:
  // Either all members have one, or none.
  struct GpuBackendResult {
    std::shared_ptr<CtranGpuBackend> backend;
    std::string unavailable_reason;  // the same on all ranks
  };
  // What the members have beside the device.
  struct GpuBackendCallbacks {
    // Every member's words to all of them, by rank, while they are connected.
    std::function<std::vector<std::string>(const std::string& words, const ctran::ExchangePurpose&)>
        all_gather_strings;
    // Why operations under way wait in vain, see nccl::CollectiveKernels. Any thread.
    std::function<std::optional<CommError>(const Context&)> find_failed_peer;
    // Ranks, a bit each, whose devices write to others no more. Any thread.
    std::function<uint32_t()> quiesced_ranks;
    // What an error of an operation comes from, if that is known by now.
    std::function<CommError(const CommError&)> explain;
    const ctran::SharedTuning& shared_tuning;  // of tuning; not kept
  };
  // Collective. `device` is of the kind that is_supported_device() says yes to. Throws CommError,
  // and what the telling does.
  static GpuBackendResult make(int rank, const std::vector<int>& ranks, at::Device device,
                               const std::string& name, const CommOptions& options,
                               const GpuBackendCallbacks& links);
  // Whether tensors on such a device are for kernels: GPUs, or the CPU where the kernels are for
  // host memory.
  static bool is_supported_device(const at::Device& device);
  // The model of such a device, as tuning files have it; "" for others.
  static std::string model_of(const at::Device& device);

  // Memory that the devices of other ranks can map, for windows. Throws CommError(kUnsupported)
  // where this process has no such device.
  static std::shared_ptr<c10::Allocator> make_mem_allocator();

  // The team's operations are not split: a split has a team of its own.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;
  Capabilities capabilities() const override;

 private:
  CtranGpuBackend(const GpuBackendCallbacks& links, const CommOptions& options);
  std::shared_ptr<NcclApiBackend> make_child() const override;
  KernelDecision choose(ctran::kernels::KernelCall& call,
                        const SelectionQuery& asked) const override;
  int max_blocks(ctran::kernels::Collective collective,
                 const OperationOptions& options) const override;
  // There is none.
  void require_library_allowed(ctran::kernels::Collective collective,
                               const OperationOptions& options) const override;
  Fallback fallback_for(ctran::kernels::Collective collective) const override;
  ctran::KernelPreference kernel_preference_for(const OperationOptions& options) const;
  std::vector<std::string> all_gather_strings(const std::string& words,
                                              const nccl::NcclCall& now) override;
  std::string kernels_unavailable_reason() const override { return "they are gone"; }
  bool has_library() const override { return false; }
  CommError explain_error(const CommError& error) override { return explain_(error); }

  const decltype(GpuBackendCallbacks::all_gather_strings) all_gather_strings_;
  const std::function<CommError(const CommError&)> explain_;
  const ctran::KernelPreference kernel_preference_;
};

}  // namespace torch::comms
