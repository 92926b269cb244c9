#include "core/staging.hpp"

#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/fork.hpp"
#include "core/each_operation.hpp"
#include "core/explain.hpp"
#include "core/retire.hpp"
#include "core/staged_call.hpp"
#include "core/staging_desk.hpp"

namespace torch::comms {
namespace {

constexpr size_t kMostEvents = 256;

std::shared_ptr<const gpu::Runtime> runtime() { return gpu::Runtime::of(runtime_of_torch()); }

}  // namespace

Staging::Staging(std::shared_ptr<TorchCommBackend> backend, std::shared_ptr<Device> device,
                 size_t most_idle_bytes)
    : desk_(std::make_shared<Desk>(std::move(backend), std::move(device), most_idle_bytes)),
      fork_generation_(base::fork_generation()) {}

Staging::~Staging() {
  if (fork_generation_ != base::fork_generation()) {
    // Its thread exists in the parent alone.
    static_cast<void>(new std::shared_ptr<Desk>(std::move(desk_)));
    return;
  }
  auto flight = desk_->flight();
  retire(std::move(flight), [desk = std::move(desk_)] { desk->close(); }, /*may_block=*/true);
}

std::unique_ptr<Staging> Staging::open(std::shared_ptr<TorchCommBackend> backend, at::Device wanted,
                                       int rank) {
  const auto serving = runtime();
  const auto at = resolve_device(*serving, wanted, rank, std::string(backend->getBackendName()));
  auto device = std::make_shared<Device>(serving, at, /*high_priority_stream=*/false, kMostEvents);
  return std::make_unique<Staging>(std::move(backend), std::move(device));
}

const at::Device& Staging::device() const noexcept { return desk_->device().torch_device(); }

template <class Op>
WorkPtr Staging::run(const Op& op) {
  const Context context{.op = std::string(opToString(Op::kName)),
                        .comm = std::string(desk_->backend().getCommName()),
                        .rank = desk_->backend().getRank()};
  return with_context(context, [&] { return run(staged_call(op, context.rank)); });
}

WorkPtr Staging::run(StagedCall call) {
  desk_->require(call);
  const bool async_op = call.async_op;
  auto job = desk_->make_job(std::move(call));
  if (!async_op) {
    desk_->carry_out(std::move(job));
    return completedWork();
  }
  auto work = c10::make_intrusive<Work>(desk_, job);
  job->work = work;
  desk_->queue(std::move(job));
  return work;
}

void Staging::hand_over() { desk_->hand_over(); }
void Staging::drain() { desk_->drain(); }
size_t Staging::idle_bytes() const { return desk_->pool().idle_bytes(); }

void require_stageable(const at::Device& device, const std::string& backend,
                       const std::string& comm) {
  if (device.is_cpu()) return;
  const Context context{.op = "new_comm", .comm = comm};
  if (!device.is_cuda())
    throw CommError(Errc::kUnsupported,
                    "backend '" + backend +
                        "' works on device cpu, and on cuda by way of host memory, not on " +
                        device.str(),
                    context);
  with_context(context, [&] { resolve_device(*runtime(), device, 0, backend); });
}

at::Device staged_device(const at::Device& device, int rank, const std::string& backend) {
  if (device.is_cpu()) return device;
  const auto serving = runtime();
  const auto resolved = resolve_device(*serving, device, rank, backend);
  serving->set_device(resolved.index());
  return resolved;
}

#define TC_STAGED(Op) template WorkPtr Staging::run(const Op&);
TC_FOR_EACH_OPERATION_OF_BACKENDS(TC_STAGED)
#undef TC_STAGED

}  // namespace torch::comms
