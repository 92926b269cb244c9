#include <algorithm>
#include <chrono>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include "backends/device_kernels/kernel_backend.hpp"
#include "backends/device_kernels/team_kernels.hpp"
#include "backends/device_kernels/team_window.hpp"
#include "backends/nccl/streams/launch.hpp"
#include "core/comm/error_context.hpp"
#include "core/comm/operand_checks.hpp"

// KernelBackend: windows of tensors on the device, and what they need of their communicator.
namespace torch::comms {
namespace {

// Another thread may be about to complete a work that it has found done.
constexpr std::chrono::milliseconds kWindowIdleTimeout{20};

}  // namespace

std::shared_ptr<TorchCommWindow> KernelBackend::new_window(
    const std::optional<at::Tensor>& tensor) {
  auto window = std::make_shared<ctran::TeamWindow>(window_backend_lookup(), getDevice());
  if (tensor) window->tensor_register(*tensor, /*owning=*/true);
  return window;
}

std::shared_ptr<TorchCommWindow> KernelBackend::window_allocate(size_t size_bytes, bool cpu_buf,
                                                                size_t signal_size) {
  if (cpu_buf)
    throw CommError(Errc::kUnsupported,
                    "cpu_buf=True: windows of this backend are on " + getDevice().str(),
                    window_context("window_allocate"));
  auto window =
      std::make_shared<ctran::TeamWindow>(window_backend_lookup(), getDevice(), signal_size);
  window->allocate(size_bytes);
  return window;
}

ctran::TeamWindow::BackendLookup KernelBackend::window_backend_lookup() {
  return [self = std::static_pointer_cast<KernelBackend>(shared_from_this())](std::string_view) {
    return self;
  };
}

Context KernelBackend::window_context(std::string_view method) const {
  return {.op = std::string(method), .comm = std::string(getCommName()), .rank = getRank()};
}

void KernelBackend::with_device(std::string_view method, const std::function<void()>& body) {
  with_context([&] { return window_context(method); },
               [&] {
                 const auto& device = launch_queue()->device();
                 const nccl::NcclDevice::DeviceCallGuard scope(device);
                 const gpu::CaptureModeGuard mode(device.runtime());
                 body();
               });
}

at::Tensor KernelBackend::mappable_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  const PlainDispatchGuard plain;
  const auto& device = launch_queue()->device();
  const nccl::NcclDevice::DeviceCallGuard scope(device);
  const auto runtime = device.shared_runtime();
  const gpu::CaptureModeGuard mode(*runtime);
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  const auto index = device.torch_device().has_index() ? device.torch_device().index() : 0;
  const auto memory = std::make_shared<gpu::ShareableMemory>(gpu::ShareableMemory::create(
      gpu::Driver::of(*runtime), *runtime, index, std::max<size_t>(bytes, 1)));
  const auto options = at::TensorOptions().dtype(dtype).device(getDevice());
  return at::from_blob(
      memory->at(), sizes,
      [memory, runtime, at = getDevice()](void*) { synchronize_torch_stream(*runtime, at); },
      options, getDevice());
}

void KernelBackend::synchronize_current_stream() const {
  const auto& device = launch_queue()->device();
  if (!device.is_run_by_host()) device.runtime().synchronize(device.current_stream());
}

std::shared_ptr<const ctran::DeviceWindow> KernelBackend::open_window(
    std::string_view method, const ctran::DeviceWindow::RankMemory& own, std::string local_error,
    const c10::Storage& memory) {
  const auto now = begin_call(OpName::new_window, false, {}, method);
  std::shared_ptr<const ctran::DeviceWindow> window;
  run_collective_setup(now, [&] {
    require_kernels();
    auto result = ctran::DeviceWindow::create(
        kernels_->shared_team(), own, std::move(local_error),
        [&](const std::string& text) { return all_gather_strings(text, now); });
    if (!result.window) throw CommError(Errc::kUnsupported, result.unavailable_reason);
    // Launches may use the window and its tensor's memory even after the window object is
    // destroyed.
    struct WindowAndMemory {
      c10::Storage memory;
      std::unique_ptr<ctran::DeviceWindow> window;  // destroyed first
    };
    const auto both =
        std::make_shared<WindowAndMemory>(WindowAndMemory{memory, std::move(result.window)});
    window = {both, both->window.get()};
    kernels_->windows().open(window, count_graphs());
    kernels_->add_open_window(window);
  });
  return window;
}

ctran::WindowLifetimes::GraphCounts KernelBackend::count_graphs() {
  auto* const waits = wait_queue_if_any();
  return {launch_queue()->graphs().count(), waits == nullptr ? 0 : waits->graphs().count()};
}

void KernelBackend::close_window(std::string_view method,
                                 std::shared_ptr<const ctran::DeviceWindow> window) {
  const auto now = begin_call(OpName::new_window, false, {}, method);
  run_collective_setup(now, [&] {
    kernels_->remove_open_window(window);
    // All puts and signals are done when all ranks have passed the barrier.
    barrier(/*async_op=*/true, {})->hostSynchronize();
    // Pending waits keep the window, and so do graphs, which may still use it.
    kernels_->windows().close(window, count_graphs());
    window.reset();
    auto* const waits = wait_queue_if_any();
    if (waits != nullptr) waits->poll(nccl::Clock::now());
    if (waits == nullptr || waits->wait_idle(kWindowIdleTimeout))
      kernels_->windows().release_unused([&](const ctran::WindowLifetimes::GraphCounts& after,
                                             const ctran::WindowLifetimes::GraphCounts& until) {
        return launch_queue()->graphs().has_live({after.calls, until.calls}) ||
               (waits != nullptr && waits->graphs().has_live({after.waits, until.waits}));
      });
    // The memory may be freed when no rank maps it any more.
    all_gather_strings("", now);
  });
}

void KernelBackend::run_collective_setup(const nccl::NcclCall& now,
                                         const std::function<void()>& body) {
  const auto& device = launch_queue()->device();
  const nccl::NcclDevice::DeviceCallGuard scope(device);
  const gpu::CaptureModeGuard mode(device.runtime());
  try {
    body();
  } catch (const Interrupted& e) {
    abort_on_interrupt(e, now, *launch_queue());
  } catch (const CommError& e) {
    throw nccl::with_context(explain_error(e), now);
  } catch (...) {  // an exception of Python, from an interrupt
    launch_queue()->abort_and_wait({Errc::kAborted, "the call was interrupted", now.context()},
                                   /*blocks=*/false);
    throw;
  }
}

WorkPtr KernelBackend::run_window_step(
    const WindowCall& step, bool async_op, const OperationOptions& options,
    const std::function<void(gpu::NativeStream stream, uint64_t limit_ns)>& body) {
  auto now = begin_call(OpName::new_window, async_op, options, step.name);
  now.aborts_at_timeout = true;
  const auto enqueue = [&](const nccl::NcclLaunch& launch) {
    body(launch.stream, timeout_ns_of(now));
    return nccl::abi::Result(nccl::abi::kSuccess);
  };
  const at::Tensor none;
  auto kept = retain_storages(now, {{step.tensor != nullptr ? step.tensor : &none}, {}});
  return log_window_call(step, [&] {
    if (step.is_outgoing) return launch(*launch_queue(), now, options, std::move(kept), enqueue);
    if (wait_queue_if_any() == nullptr) wait_queue().attach_kernels(kernels_, /*serialized=*/false);
    return launch(wait_queue(), now, options, std::move(kept), enqueue);
  });
}

}  // namespace torch::comms
