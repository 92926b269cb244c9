#include "backends/ctran/gpu_backend.hpp"

#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/ctran/ctran_options.hpp"
#include "backends/device_kernels/team_kernels.hpp"
#include "backends/device_kernels/tuning_lookup.hpp"
#include "backends/device_kernels/workspace_policy.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "backends/nccl/streams/nccl_device.hpp"
#include "backends/nccl/windows/nccl_allocator.hpp"
#include "core/comm/error_context.hpp"
#include "ctran/library/team_library.hpp"
#include "ctran/team/kernel_library.hpp"
#include "ctran/team/kernel_selection.hpp"

namespace torch::comms {
namespace {

bool has_device(std::string& why_not) {
  try {
    return gpu::Runtime::of(gpu::kCuda)->device_count(&why_not) > 0;
  } catch (const CommError& e) {
    why_not = e.why();
    return false;
  }
}

}  // namespace

CtranGpuBackend::CtranGpuBackend(const GpuBackendCallbacks& links, const CommOptions& options)
    : KernelBackend(ctran::kTeamLibrary, "ctran"),
      all_gather_strings_(links.all_gather_strings),
      explain_(links.explain),
      kernel_preference_(ctran::parse_kernel_preference(options.hints)) {}

bool CtranGpuBackend::is_supported_device(const at::Device& device) {
  return device.is_cpu() ? ctran::KernelLibrary::is_for_host()
                         : device.type() == nccl::device_type_of(ctran::kTeamLibrary);
}

std::string CtranGpuBackend::model_of(const at::Device& device) {
  if (!is_supported_device(device)) return {};
  const auto runtime = device.is_cpu() ? gpu::Runtime::shared_cpu() : gpu::Runtime::of(gpu::kCuda);
  return ctran::gpu_model_name(*runtime, device.has_index() ? device.index() : 0);
}

CtranGpuBackend::GpuBackendResult CtranGpuBackend::make(int rank, const std::vector<int>& ranks,
                                                        at::Device device, const std::string& name,
                                                        const CommOptions& options,
                                                        const GpuBackendCallbacks& links) {
  const std::shared_ptr<CtranGpuBackend> backend(new CtranGpuBackend(links, options));
  std::string why_not;
  const bool is_connected = backend->init_from_members(
      {rank, ranks}, device, name, options, [&](const nccl::NcclDevice& opened) -> nccl::abi::Comm {
        const auto& at = opened.torch_device();
        auto team = ctran::DeviceTeam::create(
            rank, static_cast<int>(ranks.size()), at.has_index() ? at.index() : 0,
            opened.shared_runtime(), "",
            [&](const std::string& text) {
              return links.all_gather_strings(text, {"new_comm", options.timeout});
            },
            ctran::parse_workspace_extent(options.hints));
        why_not = std::move(team.unavailable_reason);
        if (!team.team) return nullptr;
        const std::shared_ptr<ctran::DeviceTeam> shared = std::move(team.team);
        backend->set_kernels(
            std::make_shared<ctran::TeamKernels>(
                shared,
                ctran::TeamKernels::PeerEvents{links.find_failed_peer, links.quiesced_ranks}),
            ctran::find_tuning_rows(links.shared_tuning, shared->size(), rank == 0));
        return ctran::open_team(shared, opened.shared_runtime());
      });
  return {is_connected ? backend : nullptr, std::move(why_not)};
}

std::shared_ptr<c10::Allocator> CtranGpuBackend::make_mem_allocator() {
  return with_context([] { return Context{.op = "get_mem_allocator"}; },
                      [] {
                        std::string why;
                        if (!ctran::KernelLibrary::is_for_host() && !has_device(why))
                          throw CommError(
                              Errc::kUnsupported,
                              "backend 'ctran' has no memory allocator in this process: it "
                              "allocates GPU memory, and no GPU is available: " +
                                  why);
                        return nccl::make_allocator(ctran::kTeamLibrary);
                      });
}

std::vector<std::string> CtranGpuBackend::all_gather_strings(const std::string& text,
                                                             const nccl::NcclCall& now) {
  return all_gather_strings_(text, {now.name.empty() ? opToString(now.op) : now.name, now.timeout});
}

std::shared_ptr<NcclApiBackend> CtranGpuBackend::make_child() const { return nullptr; }

std::shared_ptr<TorchCommBackend> CtranGpuBackend::split(const std::vector<int>&,
                                                         const std::string&, const CommOptions&) {
  throw CommError(Errc::kUnsupported,
                  "this internal backend cannot be split; call split() on the communicator",
                  {.op = "split", .comm = std::string(getCommName()), .rank = getRank()});
}

Capabilities CtranGpuBackend::capabilities() const {
  auto can = KernelBackend::capabilities();
  can.reduce_ops.set();
  return can;
}

KernelBackend::KernelDecision CtranGpuBackend::choose(ctran::kernels::KernelCall& call,
                                                      const SelectionQuery& query) const {
  const auto preference = kernel_preference_for(query.options);
  const auto& team = kernels()->team();
  call.blocks = preference.blocks;
  if (preference.provider == ctran::KernelPreference::KernelProvider::kKernels) {
    call.algorithm = preference.algorithm;
    if (team.can_launch(call)) return {true};
    call.algorithm = ctran::kernels::KernelAlgorithm::kAutomatic;
    call.blocks = 0;
  } else if (const auto measured = choose_from_tuning(call, query, /*library_may=*/false)) {
    return *measured;
  }
  if (team.can_launch(call)) return {true};
  throw CommError(Errc::kUnsupported, "no kernel supports " + std::string(opToString(query.op)) +
                                          " of " + std::to_string(query.bytes) + " bytes, " +
                                          std::string(name_of(call.op)) + " of " +
                                          std::string(name_of(call.dtype)));
}

void CtranGpuBackend::require_library_allowed(ctran::kernels::Collective,
                                              const OperationOptions&) const {
  if (!workspace_error().empty())
    throw CommError(
        Errc::kResourceExhausted,
        "out of device memory: the operation needs the full kernel workspace, which could not be "
        "allocated: " +
            workspace_error() +
            ". Free device memory, or set hint ctran::workspace=whole to fail at creation");
}

ctran::KernelPreference CtranGpuBackend::kernel_preference_for(
    const OperationOptions& options) const {
  return options.hints.empty()
             ? kernel_preference_
             : ctran::parse_call_kernel_preference(options.hints, kernel_preference_);
}

int CtranGpuBackend::max_blocks(ctran::kernels::Collective, const OperationOptions& options) const {
  const auto preference = kernel_preference_for(options);
  return preference.provider == ctran::KernelPreference::KernelProvider::kAutomatic
             ? preference.blocks
             : 0;
}

KernelBackend::Fallback CtranGpuBackend::fallback_for(ctran::kernels::Collective) const {
  return {"nothing", "kernels are all there is"};
}

}  // namespace torch::comms
