#include "backends/device_kernels/team_window.hpp"

#include <utility>

#include <ATen/ops/from_blob.h>

#include "backends/device_kernels/kernel_backend.hpp"
#include "backends/device_kernels/team_kernels.hpp"
#include "core/comm/error_context.hpp"
#include "core/comm/operand_checks.hpp"
#include "core/window/window_metadata.hpp"
#include "ctran/team/kernel_handles.hpp"

namespace torch::comms::ctran {

TeamWindow::TeamWindow(BackendLookup backend_lookup, at::Device device, size_t slots)
    : backend_lookup_(std::move(backend_lookup)), slots_(slots) {
  device_ = device;
}

TeamWindow::~TeamWindow() = default;

bool TeamWindow::is_stale(const KernelBackend& comm) const {
  return window_ && opened_by_.lock() != comm.shared_kernels();
}

std::shared_ptr<KernelBackend> TeamWindow::require_backend(std::string_view method) const {
  auto comm = backend_lookup_(method);
  if (is_stale(*comm)) throw stale_window_error(comm->window_context(method));
  return comm;
}

void TeamWindow::open(std::string_view method, const at::Tensor& tensor, bool owning,
                      std::string local_error) {
  const auto comm = backend_lookup_(method);
  DeviceWindow::RankMemory own{.slots = slots_};
  if (local_error.empty() && tensor.device() != device_)
    local_error = "its tensor is on " + tensor.device().str() +
                  ", windows of this communicator are on " + device_.str() +
                  (tensor.is_cpu() ? "; window_allocate(cpu_buf=True) is for host memory" : "");
  if (local_error.empty())
    local_error = transport::nvl::error_text_of([&] { own.metadata = encode_tensor_meta(tensor); });
  if (local_error.empty()) {
    own.at = static_cast<std::byte*>(tensor.mutable_data_ptr());
    own.size_bytes = tensor.nbytes();
  }
  window_ = comm->open_window(method, own, std::move(local_error),
                              owning ? tensor.storage() : c10::Storage());
  opened_by_ = comm->shared_kernels();
  if (owning) tensor_ = tensor;
  dtype_ = tensor.scalar_type();
  shape_ = tensor.sizes().vec();
  size_bytes_ = tensor.nbytes();
}

void TeamWindow::allocate(size_t size_bytes) {
  constexpr std::string_view kMethod = "window_allocate";
  const auto comm = backend_lookup_(kMethod);
  with_context([&] { return comm->window_context(kMethod); },
               [&] { require_addressable_size(size_bytes, slots_); });
  at::Tensor memory;
  auto local_error = transport::nvl::error_text_of(
      [&] { memory = comm->mappable_tensor({static_cast<int64_t>(size_bytes)}, at::kByte); });
  open(kMethod, memory, /*owning=*/memory.defined(), std::move(local_error));
}

void TeamWindow::tensor_register(const at::Tensor& tensor, bool owning) {
  open("tensor_register", tensor, owning, "");
}

void TeamWindow::tensor_deregister() {
  handle_.reset();
  auto window = std::exchange(window_, nullptr);
  const auto sources = std::exchange(buffers_, {});
  const auto keep = std::exchange(tensor_, std::nullopt);
  dtype_ = at::kFloat;
  shape_.clear();
  size_bytes_ = 0;
  const auto opened_by = opened_by_.lock();
  try {
    const auto comm = backend_lookup_("tensor_deregister");
    if (opened_by && opened_by == comm->shared_kernels())
      comm->close_window("tensor_deregister", std::move(window));
  } catch (const CommError& e) {
    // The former members cannot be asked.
    if (e.code() != Errc::kStaleGeneration) throw;
  }
}

std::shared_ptr<TorchCommWindow> TeamWindow::clone() {
  auto copy = std::make_shared<TeamWindow>(backend_lookup_, device_, slots_);
  if (!window_) return copy;
  const auto comm = require_backend("clone");
  const PlainDispatchGuard plain;
  const auto source = view(comm->getRank(), 0, shape_, dtype_);
  at::Tensor target;
  auto local_error = transport::nvl::error_text_of([&] {
    target = comm->mappable_tensor(source.sizes(), dtype_);
    target.copy_(source);
    comm->synchronize_current_stream();  // peers may write as soon as the window is open
  });
  copy->open("clone", target, /*owning=*/target.defined(), std::move(local_error));
  return copy;
}

WorkPtr TeamWindow::put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems,
                        bool async_op, const PutOptions& options) {
  constexpr std::string_view kMethod = "put";
  const auto comm = require_backend(kMethod);
  const auto offset = with_context([&] { return comm->window_context(kMethod); },
                                   [&] {
                                     if (tensor.device() != device_)
                                       throw CommError(Errc::kInvalidArgument,
                                                       "tensor is on " + tensor.device().str() +
                                                           ", the window on " + device_.str());
                                     return put_offset_bytes(tensor, target_offset_nelems, dst_rank,
                                                             rank_memory(dst_rank).size_bytes);
                                   });
  return comm->run_window_step({kMethod, true, dst_rank, &tensor}, async_op, options,
                               [&](gpu::NativeStream stream, uint64_t) {
                                 window_->put(dst_rank, offset, tensor.const_data_ptr(),
                                              tensor.nbytes(), stream);
                               });
}

WorkPtr TeamWindow::signal(int peer_rank, bool async_op, const SignalOptions& options) {
  return require_backend("signal")->run_window_step(
      {"signal", true, peer_rank}, async_op, options,
      [&](gpu::NativeStream stream, uint64_t) { window_->signal(peer_rank, stream); });
}

WorkPtr TeamWindow::wait_signal(int peer_rank, bool async_op, const WaitSignalOptions& options) {
  return require_backend("wait_signal")
      ->run_window_step({"wait_signal", false, peer_rank}, async_op, options,
                        [&](gpu::NativeStream stream, uint64_t limit_ns) {
                          window_->wait_signal(peer_rank, limit_ns, stream);
                        });
}

WorkPtr TeamWindow::signal_slot(size_t slot, uint64_t value, int dst_rank, bool async_op,
                                const SignalOptions& options) {
  const auto comm = require_backend("signal");
  with_context([&] { return comm->window_context("signal"); },
               [&] { require_slot(slot, dst_rank, rank_memory(dst_rank).slots); });
  return comm->run_window_step(
      {"signal", true, dst_rank}, async_op, options,
      [&](gpu::NativeStream stream, uint64_t) { window_->store(dst_rank, slot, value, stream); });
}

WorkPtr TeamWindow::wait_slot(size_t slot, uint64_t value, SignalCmpOp compare, bool async_op,
                              const WaitSignalOptions& options) {
  static_assert(static_cast<int>(SignalCmpOp::GE) ==
                    static_cast<int>(kernels::KernelSlotComparison::kAtLeast) &&
                static_cast<int>(SignalCmpOp::LE) ==
                    static_cast<int>(kernels::KernelSlotComparison::kAtMost));
  const auto comm = require_backend("wait_signal");
  with_context([&] { return comm->window_context("wait_signal"); },
               [&] { require_slot(slot, comm->getRank(), rank_memory(comm->getRank()).slots); });
  return comm->run_window_step(
      {"wait_signal", false, -1}, async_op, options,
      [&](gpu::NativeStream stream, uint64_t limit_ns) {
        window_->wait_slot(slot, value, static_cast<kernels::KernelSlotComparison>(compare),
                           limit_ns, stream);
      });
}

std::shared_ptr<TorchCommWindowAttr> TeamWindow::get_attr(int) {
  (void)require_backend("get_attr");
  auto attr = std::make_shared<TorchCommWindowAttr>();
  attr->access_type = TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
  return attr;
}

at::Tensor TeamWindow::view(int rank, uint64_t offset_bytes, at::IntArrayRef sizes,
                            at::ScalarType dtype) const {
  const PlainDispatchGuard plain;
  const auto options = at::TensorOptions().dtype(dtype).device(device_);
  const auto own = tensor_;  // keeps this rank's tensor alive; the window keeps the memory of peers
  return at::from_blob(
      rank_memory(rank).at + offset_bytes, sizes, [window = window_, own](void*) {}, options,
      device_);
}

at::Tensor TeamWindow::map_remote_tensor(int rank) {
  constexpr std::string_view kMethod = "map_remote_tensor";
  const auto comm = require_backend(kMethod);
  if (rank == comm->getRank() && tensor_) return *tensor_;
  const auto [dtype, sizes] =
      with_context([&] { return comm->window_context(kMethod); },
                   [&] { return parse_tensor_meta(rank_memory(rank).metadata); });
  return view(rank, 0, sizes, dtype);
}

at::Tensor TeamWindow::get_remote_tensor(int rank, const std::vector<int64_t>& sizes,
                                         at::ScalarType dtype, int64_t offset_nelems) {
  constexpr std::string_view kMethod = "get_tensor";
  const auto comm = require_backend(kMethod);
  const auto begin = with_context([&] { return comm->window_context(kMethod); },
                                  [&] {
                                    return view_offset_bytes(sizes, dtype, offset_nelems, rank,
                                                             rank_memory(rank).size_bytes);
                                  });
  return view(rank, begin, sizes, dtype);
}

int64_t TeamWindow::get_device_window(int signal_count, int counter_count, int barrier_count) {
  constexpr std::string_view kMethod = "get_device_window";
  const auto comm = require_backend(kMethod);
  if (!handle_)
    comm->with_device(kMethod, [&] {
      handle_ = std::make_unique<WindowHandle>(
          window_, WindowHandle::WindowHandleCounts{signal_count, counter_count, barrier_count},
          comm->user_kernel_timeout_ns());
      comm->mark_user_kernels();
    });
  return reinterpret_cast<int64_t>(handle_->address());
}

WindowHandle& TeamWindow::require_handle(std::string_view method, const KernelBackend& comm) const {
  if (!handle_)
    throw CommError(Errc::kInvalidArgument,
                    "the window has no device handle; call get_device_window() first",
                    comm.window_context(method));
  return *handle_;
}

int64_t TeamWindow::register_local_buffer(const at::Tensor& tensor) {
  constexpr std::string_view kMethod = "register_local_buffer";
  const auto comm = require_backend(kMethod);
  auto& handle = this->require_handle(kMethod, *comm);
  if (tensor.device() != device_)
    throw CommError(Errc::kInvalidArgument,
                    "tensor is on " + tensor.device().str() + ", the window on " + device_.str(),
                    comm->window_context(kMethod));
  int64_t buffer_handle = 0;
  comm->with_device(kMethod, [&] {
    buffer_handle =
        reinterpret_cast<int64_t>(handle.add_buffer(tensor.mutable_data_ptr(), tensor.nbytes()));
  });
  buffers_.insert_or_assign(buffer_handle, tensor.storage());
  return buffer_handle;
}

void TeamWindow::deregister_local_buffer(int64_t handle) {
  constexpr std::string_view kMethod = "deregister_local_buffer";
  const auto comm = backend_lookup_(kMethod);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what register_local_buffer() gave.
  const auto* const buffer = reinterpret_cast<const void*>(handle);
  if (!handle_ || !handle_->remove_buffer(buffer))
    throw CommError(
        Errc::kInvalidArgument,
        std::to_string(handle) + " is not the handle of a buffer registered with this window",
        comm->window_context(kMethod));
  buffers_.erase(handle);
}

int64_t TeamWindow::get_nvlink_address(int peer, uint64_t offset_bytes) {
  constexpr std::string_view kMethod = "get_nvlink_address";
  const auto comm = require_backend(kMethod);
  const auto& memory = rank_memory(peer);
  if (offset_bytes > memory.size_bytes)
    throw CommError(Errc::kOutOfRange,
                    "offset " + std::to_string(offset_bytes) + " is beyond the window of rank " +
                        std::to_string(peer) + ", which has " + std::to_string(memory.size_bytes) +
                        " bytes",
                    comm->window_context(kMethod));
  return reinterpret_cast<int64_t>(memory.at + offset_bytes);
}

int64_t TeamWindow::get_multimem_address(uint64_t) {
  (void)require_backend("get_multimem_address");
  return 0;
}

}  // namespace torch::comms::ctran
