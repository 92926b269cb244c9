#include "backends/ctran/ctran_window.hpp"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "backends/ctran/call_context.hpp"
#include "backends/ctran/ctran_work.hpp"
#include "backends/ctran/gpu_backend.hpp"
#include "backends/ctran/shared_tensor.hpp"
#include "backends/device_kernels/team_window.hpp"
#include "core/comm/operand_checks.hpp"
#include "core/window/window_metadata.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {

std::shared_ptr<TorchCommWindow> TorchCommCtran::new_window(
    const std::optional<at::Tensor>& tensor) {
  begin_call(OpName::new_window, {});
  if (!device_.is_cpu() && kernel_backend() != nullptr) {
    const auto window = make_gpu_window(ctran::TeamWindow::kSlots);
    if (tensor) window->tensor_register(*tensor, /*owning=*/true);
    return window;
  }
  auto window = std::make_shared<ctran::CtranWindow>(shared_from_this());
  if (tensor) window->tensor_register(*tensor, /*owning=*/true);
  return window;
}

std::shared_ptr<TorchCommWindow> TorchCommCtran::window_allocate(size_t size_bytes, bool cpu_buf,
                                                                 size_t signal_size) {
  if (!cpu_buf && kernel_backend() != nullptr) {
    auto window = make_gpu_window(signal_size);
    window->allocate(size_bytes);
    return window;
  }
  auto window = std::make_shared<ctran::CtranWindow>(shared_from_this(), signal_size);
  window->allocate(size_bytes);
  return window;
}

std::shared_ptr<ctran::TeamWindow> TorchCommCtran::make_gpu_window(size_t slots) {
  const auto lookup = [self = shared_from_this()](std::string_view method) {
    self->begin_call(method, {});
    if (self->kernel_backend() == nullptr)
      throw CommError(Errc::kUnsupported,
                      "the kernels of this window are no longer available" +
                          (self->session_ ? ": " + self->session_->gpu_unavailable_reason : ""),
                      {.op = std::string(method), .comm = self->name_, .rank = self->rank_});
    return std::static_pointer_cast<KernelBackend>(self->session_->gpu_backend);
  };
  return std::make_shared<ctran::TeamWindow>(lookup, device_, slots);
}

namespace ctran {
namespace {

// Returns: why the memory of a rank on this host is not mapped.
const char* why_unmapped(const PeerWindows::PeerWindow& peer) {
  const bool in_file = peer.memory && peer.memory->handle.descriptor >= 0;
  return in_file ? "its tensor is in shared memory that could not be mapped here"
                 : "its tensor is in private memory, or in a deleted shared-memory file that no "
                   "process there has open; call share_memory_() before registering it, or "
                   "use window_allocate() if that rank has shared memory";
}

}  // namespace

CtranWindow::CtranWindow(std::shared_ptr<TorchCommCtran> comm, size_t slots)
    : comm_(std::move(comm)), slots_(slots) {
  device_ = at::kCPU;  // regardless of the device of the communicator's tensors
}

Context CtranWindow::context(std::string_view method, int peer) const {
  return {.op = std::string(method), .comm = comm_->name_, .rank = comm_->rank_, .peer = peer};
}

bool CtranWindow::is_stale() const {
  const auto& now = comm_->session_;
  return window_ && now &&
         (session_.lock() != now ||
          now->connected_links.is_superseded->load(std::memory_order_relaxed));
}

CallInfo CtranWindow::begin_call(std::string_view method, const OperationOptions& options) const {
  const auto now = comm_->begin_call(method, options);
  if (is_stale()) throw stale_window_error(context(method));
  return now;
}

void CtranWindow::require_on_window_device(const at::Tensor& tensor) const {
  if (!tensor.is_cpu())
    throw CommError(Errc::kUnsupported, "tensor is on device " + tensor.device().str() +
                                            ", this window of backend 'ctran' is on cpu");
}

void CtranWindow::open(std::string_view method, const at::Tensor& tensor, bool owning) {
  const auto now = comm_->begin_call(method, {});
  with_context([&] { return context(method); }, [&] { require_on_window_device(tensor); });
  with_context([&] { return context(method); },
               [&] {
                 try {
                   window_ = Window::create(*comm_->session_->group,
                                            {.memory = writable_bytes_of(tensor),
                                             .slots = slots_,
                                             .metadata = encode_tensor_meta(tensor)},
                                            method, now.timeout);
                 } catch (const Interrupted& e) {
                   e.rethrow_cause();
                 } catch (const CommError& e) {
                   throw comm_->handle_failure(e);
                 }
               });
  session_ = comm_->session_;
  if (owning) tensor_ = tensor;
  dtype_ = tensor.scalar_type();
  shape_ = tensor.sizes().vec();
  size_bytes_ = tensor.nbytes();
}

void CtranWindow::allocate(size_t size_bytes) {
  constexpr std::string_view kMethod = "window_allocate";
  auto memory = with_context([&] { return context(kMethod); },
                             [&] {
                               require_addressable_size(size_bytes, slots_);
                               const auto sizes = static_cast<int64_t>(size_bytes);
                               return make_shared_tensor({sizes}, at::kByte);
                             });
  open(kMethod, memory, /*owning=*/true);
}

void CtranWindow::tensor_register(const at::Tensor& tensor, bool owning) {
  open("tensor_register", tensor, owning);
}

void CtranWindow::tensor_deregister() {
  constexpr std::string_view kMethod = "tensor_deregister";
  const bool stale = is_stale();
  const auto now = stale ? CallInfo{} : begin_call(kMethod, {});
  const auto window = std::exchange(window_, nullptr);
  const auto keep = std::exchange(tensor_, std::nullopt);
  dtype_ = at::kFloat;
  shape_.clear();
  size_bytes_ = 0;
  if (stale) return;
  try {
    window->close(*comm_->session_->group, kMethod, now.timeout);
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    throw comm_->handle_failure(e);
  }
}

std::shared_ptr<TorchCommWindow> CtranWindow::clone() {
  auto copy = std::make_shared<CtranWindow>(comm_, slots_);
  if (!window_) return copy;
  const PlainDispatchGuard plain;
  const auto source = map_remote_tensor(comm_->rank_);
  // If peers can map the source, they can also map the copy.
  auto target = window_->peer_windows().is_local_shared
                    ? make_shared_tensor(source.sizes(), source.scalar_type())
                    : at::empty(source.sizes(), source.scalar_type());
  target.copy_(source);
  copy->tensor_register(target, /*owning=*/true);
  return copy;
}

const PeerWindows::PeerWindow& CtranWindow::peer_window(int rank) const {
  TC_CHECK(window_ != nullptr);
  return window_->peer_windows().windows[static_cast<size_t>(rank)];
}

WorkPtr CtranWindow::submit(const CallInfo& now, RmaOperation operation, bool async_op,
                            std::vector<c10::Storage> memory) {
  operation.name = now.op;
  operation.timeout = now.timeout;
  auto& session = *comm_->session_;
  if (async_op)
    return CtranWork::start(now, session, std::move(memory), [&](CompletionListener* listener) {
      return window_->start(operation, listener);
    });
  try {
    window_->run(operation);
  } catch (const Interrupted& e) {
    session.retain_storage(std::move(memory));
    e.rethrow_cause();
  } catch (const CommError& e) {
    throw comm_->handle_failure(e);
  }
  return completedWork();
}

WorkPtr CtranWindow::put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems,
                         bool async_op, const PutOptions& options) {
  const auto now = begin_call("put", options);
  return comm_->with_call_context(now, [&] {
    require_on_window_device(tensor);
    const auto offset =
        put_offset_bytes(tensor, target_offset_nelems, dst_rank, peer_window(dst_rank).bytes);
    std::vector<c10::Storage> memory{tensor.storage()};
    if (dst_rank == comm_->rank_ && tensor_) memory.push_back(tensor_->storage());
    return submit(now,
                  {.kind = RmaOperation::Kind::kPut,
                   .rank = dst_rank,
                   .offset = offset,
                   .from = bytes_of(tensor)},
                  async_op, std::move(memory));
  });
}

WorkPtr CtranWindow::signal(int peer_rank, bool async_op, const SignalOptions& options) {
  const auto now = begin_call("signal", options);
  return comm_->with_call_context(now, [&] {
    return submit(now, {.kind = RmaOperation::Kind::kSignal, .rank = peer_rank}, async_op, {});
  });
}

WorkPtr CtranWindow::wait_signal(int peer_rank, bool async_op, const WaitSignalOptions& options) {
  const auto now = begin_call("wait_signal", options);
  return comm_->with_call_context(now, [&] {
    return submit(now, {.kind = RmaOperation::Kind::kWaitSignal, .rank = peer_rank}, async_op, {});
  });
}

WorkPtr CtranWindow::signal_slot(size_t slot, uint64_t value, int dst_rank, bool async_op,
                                 const SignalOptions& options) {
  const auto now = begin_call("signal", options);
  return comm_->with_call_context(now, [&] {
    require_slot(slot, dst_rank, peer_window(dst_rank).slots);
    return submit(
        now, {.kind = RmaOperation::Kind::kStore, .rank = dst_rank, .slot = slot, .value = value},
        async_op, {});
  });
}

WorkPtr CtranWindow::wait_slot(size_t slot, uint64_t value, SignalCmpOp compare, bool async_op,
                               const WaitSignalOptions& options) {
  static_assert(static_cast<int>(SignalCmpOp::GE) == static_cast<int>(SlotComparison::kAtLeast) &&
                static_cast<int>(SignalCmpOp::LE) == static_cast<int>(SlotComparison::kAtMost));
  const auto now = begin_call("wait_signal", options);
  return comm_->with_call_context(now, [&] {
    require_slot(slot, comm_->rank_, peer_window(comm_->rank_).slots);
    return submit(now,
                  {.kind = RmaOperation::Kind::kWaitSlot,
                   .rank = comm_->rank_,
                   .slot = slot,
                   .value = value,
                   .comparison = static_cast<SlotComparison>(compare)},
                  async_op, {});
  });
}

std::shared_ptr<TorchCommWindowAttr> CtranWindow::get_attr(int peer_rank) {
  begin_call("get_attr", {});
  auto attr = std::make_shared<TorchCommWindowAttr>();
  attr->access_type = peer_window(peer_rank).is_mapped()
                          ? TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED
                          : TorchCommWinAccessType::WIN_ACCESS_TYPE_SEPARATE;
  return attr;
}

at::Tensor CtranWindow::view(std::string_view method, int rank, uint64_t offset_bytes,
                             at::IntArrayRef sizes, at::ScalarType dtype) const {
  const auto& group = *comm_->session_->group;
  const auto link = group.link_context()->link_name(group.context_rank(rank));
  if (!peer_window(rank).is_mapped())
    throw CommError(
        Errc::kUnsupported,
        "the window of rank " + std::to_string(rank) +
            " is not mapped here (get_attr() returns SEPARATE): " +
            (link == "shm" ? why_unmapped(peer_window(rank)) : "that rank is connected over tcp"),
        context(method, rank));
  const PlainDispatchGuard plain;
  const auto options = at::TensorOptions().dtype(dtype).device(at::kCPU);
  std::shared_ptr<const void> owner;
  const auto bytes = window_->mapped(rank, owner);
  if (bytes.empty()) return at::empty(sizes, options);
  const auto own = rank == comm_->rank_ ? tensor_ : std::nullopt;
  return at::from_blob(bytes.data() + offset_bytes, sizes, [owner, own](void*) {}, options);
}

at::Tensor CtranWindow::map_remote_tensor(int rank) {
  constexpr std::string_view kMethod = "map_remote_tensor";
  begin_call(kMethod, {});
  if (rank == comm_->rank_ && tensor_) return *tensor_;
  const auto [dtype, sizes] = parse_tensor_meta(peer_window(rank).metadata);
  return view(kMethod, rank, 0, sizes, dtype);
}

at::Tensor CtranWindow::get_remote_tensor(int rank, const std::vector<int64_t>& sizes,
                                          at::ScalarType dtype, int64_t offset_nelems) {
  constexpr std::string_view kMethod = "get_tensor";
  begin_call(kMethod, {});
  const auto begin = with_context([&] { return context(kMethod, rank); },
                                  [&] {
                                    return view_offset_bytes(sizes, dtype, offset_nelems, rank,
                                                             peer_window(rank).bytes);
                                  });
  return view(kMethod, rank, begin, sizes, dtype);
}

}  // namespace ctran
}  // namespace torch::comms
