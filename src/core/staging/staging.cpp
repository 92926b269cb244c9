#include "core/staging/staging.hpp"

#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/os/fork.hpp"
#include "core/comm/each_operation.hpp"
#include "core/comm/error_context.hpp"
#include "core/staging/staged_call.hpp"
#include "core/staging/staging_executor.hpp"
#include "core/work/deferred_teardown.hpp"

namespace torch::comms {
namespace {

constexpr size_t kMaxEvents = 256;

std::shared_ptr<const gpu::Runtime> runtime() { return gpu::Runtime::of(torch_runtime_row()); }

}  // namespace

Staging::Staging(std::shared_ptr<TorchCommBackend> backend, std::shared_ptr<CommDevice> device,
                 size_t most_idle_bytes)
    : executor_(std::make_shared<StagingExecutor>(std::move(backend), std::move(device),
                                                  most_idle_bytes)),
      fork_generation_(base::fork_generation()) {}

Staging::~Staging() {
  if (fork_generation_ != base::fork_generation()) {
    // The thread only exists in the parent process.
    static_cast<void>(new std::shared_ptr<StagingExecutor>(std::move(executor_)));
    return;
  }
  auto flight = executor_->in_flight();
  teardown_async(
      std::move(flight), [executor = std::move(executor_)] { executor->close(); },
      /*may_block=*/true);
}

std::unique_ptr<Staging> Staging::open(std::shared_ptr<TorchCommBackend> backend, at::Device wanted,
                                       int rank) {
  const auto serving = runtime();
  const auto at = resolve_device(*serving, wanted, rank, std::string(backend->getBackendName()));
  auto device =
      std::make_shared<CommDevice>(serving, at, /*high_priority_stream=*/false, kMaxEvents);
  return std::make_unique<Staging>(std::move(backend), std::move(device));
}

const at::Device& Staging::device() const noexcept { return executor_->device().torch_device(); }

template <class Op>
WorkPtr Staging::run(const Op& op) {
  const Context context{.op = std::string(opToString(Op::kName)),
                        .comm = std::string(executor_->backend().getCommName()),
                        .rank = executor_->backend().getRank()};
  return with_context(context, [&] { return run(staged_call(op, context.rank)); });
}

WorkPtr Staging::run(StagedCall call) {
  executor_->require(call);
  const bool async_op = call.async_op;
  auto job = executor_->make_operation(std::move(call));
  if (!async_op) {
    executor_->run_sync(std::move(job));
    return completedWork();
  }
  auto work = c10::make_intrusive<StagedWork>(executor_, job);
  job->work = work;
  executor_->enqueue(std::move(job));
  return work;
}

void Staging::flush() { executor_->flush(); }
void Staging::drain() { executor_->drain(); }
size_t Staging::idle_bytes() const { return executor_->pool().idle_bytes(); }

void require_stageable(const at::Device& device, const std::string& backend,
                       const std::string& comm) {
  if (device.is_cpu()) return;
  const Context context{.op = "new_comm", .comm = comm};
  if (!device.is_cuda())
    throw CommError(Errc::kUnsupported,
                    "backend '" + backend +
                        "' supports device cpu, and cuda through host memory, but not " +
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
