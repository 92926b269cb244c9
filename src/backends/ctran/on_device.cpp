#include "backends/ctran/on_device.hpp"

#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/kernels/team_kernels.hpp"
#include "backends/nccl/allocator.hpp"
#include "backends/nccl/device.hpp"
#include "core/explain.hpp"
#include "ctran/device/kernel_library.hpp"
#include "ctran/device/selection.hpp"
#include "ctran/library/team_library.hpp"

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

TorchCommCtranOnDevice::TorchCommCtranOnDevice(Links links)
    : TorchCommKernels(ctran::kTeamLibrary, "ctran"), links_(std::move(links)) {}

bool TorchCommCtranOnDevice::is_for(const at::Device& device) {
  return device.is_cpu() ? ctran::KernelLibrary::is_for_host()
                         : device.type() == nccl::device_type_of(ctran::kTeamLibrary);
}

TorchCommCtranOnDevice::Outcome TorchCommCtranOnDevice::make(
    int rank, const std::vector<int>& ranks, at::Device device, const std::string& name,
    const CommOptions& options, Links links) {
  const std::shared_ptr<TorchCommCtranOnDevice> made(new TorchCommCtranOnDevice(std::move(links)));
  std::string why_not;
  const bool is_there = made->init_as(
      {rank, ranks}, device, name, options, [&](const nccl::Device& opened) -> nccl::abi::Comm {
        const auto& at = opened.torch_device();
        auto team =
            ctran::Team::make(rank, static_cast<int>(ranks.size()), at.has_index() ? at.index() : 0,
                              opened.shared_runtime(), "", made->links_.exchange);
        why_not = std::move(team.why_not);
        if (!team.team) return nullptr;
        const std::shared_ptr<ctran::Team> shared = std::move(team.team);
        made->set_kernels(std::make_shared<ctran::TeamKernels>(shared, made->links_.lost));
        return ctran::open_team(shared, opened.shared_runtime());
      });
  return {is_there ? made : nullptr, std::move(why_not)};
}

std::shared_ptr<c10::Allocator> TorchCommCtranOnDevice::make_mem_allocator() {
  return with_context([] { return Context{.op = "get_mem_allocator"}; },
                      [] {
                        std::string why;
                        if (!ctran::KernelLibrary::is_for_host() && !has_device(why))
                          throw CommError(
                              Errc::kUnsupported,
                              "backend 'ctran' has no memory allocator here: its memory "
                              "is a GPU's, and there is none: " +
                                  why);
                        return nccl::make_allocator(ctran::kTeamLibrary);
                      });
}

std::shared_ptr<TorchCommVendor> TorchCommCtranOnDevice::child() const { return nullptr; }

std::shared_ptr<TorchCommBackend> TorchCommCtranOnDevice::split(const std::vector<int>&,
                                                                const std::string&,
                                                                const CommOptions&) {
  throw CommError(Errc::kUnsupported, "the members of a team are split by their communicator",
                  {.op = "split", .comm = std::string(getCommName()), .rank = getRank()});
}

Capabilities TorchCommCtranOnDevice::capabilities() const {
  auto can = TorchCommKernels::capabilities();
  can.reduce_ops.set();
  return can;
}

bool TorchCommCtranOnDevice::is_taken(OpName op, ctran::kernels::Call& call, size_t bytes,
                                      const OperationOptions&) const {
  if (kernels()->team().takes(call)) return true;
  throw CommError(Errc::kUnsupported, "kernels do not run " + std::string(opToString(op)) + " of " +
                                          std::to_string(bytes) + " bytes, " +
                                          std::string(ctran::name_of(call.op)) + " of " +
                                          std::string(ctran::name_of(call.dtype)));
}

TorchCommKernels::Else TorchCommCtranOnDevice::otherwise(ctran::kernels::Collective) const {
  return {"nothing", "kernels are all there is"};
}

}  // namespace torch::comms
