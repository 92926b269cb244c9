#include "backends/nccl/windows/nccl_window.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "backends/common/collective_log.hpp"
#include "backends/nccl/streams/launch.hpp"
#include "backends/nccl/streams/signal_communicators.hpp"
#include "backends/nccl/windows/nccl_allocator.hpp"
#include "backends/nccl/windows/window_registry.hpp"
#include "core/comm/error_context.hpp"
#include "core/comm/operand_checks.hpp"
#include "core/window/window_metadata.hpp"

namespace torch::comms::nccl {
namespace {

// The size of the bounce window. Larger puts from memory that is not in a window are sent in
// pieces.
constexpr size_t kBounceBytes = 16 << 20;

uint64_t rounded_up(uint64_t size_bytes) {
  return (size_bytes + abi::kWindowAlignment - 1) / abi::kWindowAlignment * abi::kWindowAlignment;
}

// What ranks exchange about their tensors.
struct WindowMemoryInfo {
  uint64_t offset_bytes = 0;  // from the start of its window
  uint64_t size_bytes = 0;
  uint64_t available_bytes = 0;  // the largest possible window size
  char error[232] = {};          // text, if the tensor cannot be in a window
};
static_assert(std::is_trivially_copyable_v<WindowMemoryInfo>);

WindowMemoryInfo describe_window_memory(const at::Tensor& tensor, const at::Device& device,
                                        const Vendor& vendor) {
  WindowMemoryInfo info;
  const auto refuse = [&info](const std::string& why) {
    std::strncpy(info.error, why.c_str(), sizeof info.error - 1);
    return info;
  };
  if (tensor.device() != device)
    return refuse("its tensor is on " + tensor.device().str() +
                  ", windows of this communicator are on " + device.str());
  info.size_bytes = tensor.nbytes();
  info.available_bytes = std::numeric_limits<uint64_t>::max();
  if (info.size_bytes == 0) return info;  // its memory is allocated when the size is known
  const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
  const auto allocation = allocation_of(data);
  info.offset_bytes = reinterpret_cast<uintptr_t>(data) % abi::kWindowAlignment;
  if (!allocation || data - info.offset_bytes < allocation->begin)
    return refuse("its tensor is not in memory of get_mem_allocator('" +
                  std::string(vendor.backend) + "') or window_allocate(), the only memory that " +
                  std::string(vendor.library) + " shares with other ranks");
  info.available_bytes =
      static_cast<uint64_t>(allocation->begin + allocation->size_bytes - data) + info.offset_bytes;
  return info;
}

// Returns: the size of the window on all ranks.
// Throws: CommError(kInvalidArgument), the same on all ranks.
uint64_t size_for(const std::vector<WindowMemoryInfo>& all) {
  uint64_t size_bytes = abi::kWindowAlignment;
  for (const auto& info : all)
    size_bytes = std::max(size_bytes, rounded_up(info.offset_bytes + info.size_bytes));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto& info = all[rank];
    std::string why = info.error;
    if (why.empty() && info.available_bytes < size_bytes)
      why = "its tensor of " + std::to_string(info.size_bytes) + " bytes can be extended to " +
            std::to_string(info.available_bytes) +
            " bytes in its allocation, but the largest window needs " + std::to_string(size_bytes);
    if (!why.empty())
      throw CommError(Errc::kInvalidArgument, "the window cannot be created, because of rank " +
                                                  std::to_string(rank) + ": " + why);
  }
  return size_bytes;
}

}  // namespace

template <class Body>
void NcclWindow::run_collectively(const NcclCall& now, LaunchQueue& queue, const Body& body) const {
  try {
    body();
  } catch (const Interrupted& e) {
    comm_->abort_on_interrupt(e, now, queue);
  } catch (const CommError& e) {
    comm_->throw_failure(e, now, queue);
  } catch (...) {
    // An exception of torch, or of the program through a wait.
    queue.abort_and_wait({Errc::kAborted, "the call was interrupted", now.context()},
                         /*blocks=*/false);
    throw;
  }
}

template <class T>
std::vector<T> NcclWindow::gather(const T& own) const {
  const auto bytes = comm_->gather_bytes(std::as_bytes(std::span(&own, 1)));
  std::vector<T> all(static_cast<size_t>(bytes.numel()) / sizeof(T));
  std::memcpy(all.data(), bytes.const_data_ptr(), all.size() * sizeof(T));
  return all;
}

NcclWindow::NcclWindow(std::shared_ptr<NcclApiBackend> comm) : comm_(std::move(comm)) {
  device_ = comm_->getDevice();
}

Context NcclWindow::context(std::string_view method) const {
  return {
      .op = std::string(method), .comm = std::string(comm_->getCommName()), .rank = comm_->rank_};
}

LaunchQueue& NcclWindow::require_queue(std::string_view method) const {
  const auto queue = queue_.lock();
  if (!queue || queue != comm_->launch_queue_) throw stale_window_error(context(method));
  return *queue;
}

void NcclWindow::open(std::string_view method, const at::Tensor& tensor, bool owning) {
  const auto now = comm_->begin_call(OpName::new_window, /*async_op=*/false, {}, method);
  run_collectively(now, *comm_->launch_queue_, [&] {
    auto window = open_memory(now, tensor, owning);
    add_bounce_window(now);
    add_signal_communicators(*window, now);
    window_ = std::move(window);
  });
  queue_ = comm_->launch_queue_;
  if (owning) tensor_ = tensor;
  dtype_ = tensor.scalar_type();
  shape_ = tensor.sizes().vec();
  size_bytes_ = tensor.nbytes();
}

std::shared_ptr<RegisteredWindow> NcclWindow::open_memory(const NcclCall& now,
                                                          const at::Tensor& tensor, bool owning) {
  const auto all = gather(describe_window_memory(tensor, device_, comm_->vendor_));
  auto window = std::make_shared<RegisteredWindow>();
  window->size_bytes = size_for(all);
  for (const auto& info : all) window->parts.push_back({info.offset_bytes, info.size_bytes});
  const auto& own = window->parts[static_cast<size_t>(comm_->rank_)];
  if (own.size_bytes == 0) {
    const auto memory = allocate_bytes(comm_->vendor_, device_, window->size_bytes);
    window->memory = memory.storage();
    window->begin = static_cast<char*>(memory.mutable_data_ptr());
  } else {
    if (owning) window->memory = tensor.storage();
    window->begin = static_cast<char*>(tensor.mutable_data_ptr()) - own.offset_bytes;
  }
  auto& queue = *comm_->launch_queue_;
  window->handle =
      queue.communicator().open_window(window->begin, window->size_bytes, launch_wait(now));
  queue.windows().all.push_back(window);
  return window;
}

void NcclWindow::add_bounce_window(const NcclCall& now) {
  auto& windows = comm_->launch_queue_->windows();
  if (windows.bounce_window) return;
  windows.bounce_window =
      open_memory(now, allocate_bytes(comm_->vendor_, device_, kBounceBytes), /*owning=*/true);
}

void NcclWindow::add_signal_communicators(RegisteredWindow& window, const NcclCall& now) {
  auto& communicator = comm_->launch_queue_->communicator();
  abi::Config config;
  config.blocking = 1;
  config.split_share = 0;  // with shared resources the communicators would wait for each other
  for (int left = count_signal_communicators(communicator.size()); left > 0; --left) {
    auto signal_communicator = communicator.split(0, communicator.rank(), communicator.rank(),
                                                  communicator.size(), config, launch_wait(now));
    communicator.attach_child(signal_communicator);
    window.signal_communicators.push_back(std::move(signal_communicator));
  }
}

void NcclWindow::allocate(size_t size_bytes) {
  constexpr std::string_view kMethod = "window_allocate";
  comms::with_context([&] { return context(kMethod); },
                      [&] { require_addressable_size(size_bytes, 0); });
  const auto now = comm_->begin_call(OpName::new_window, /*async_op=*/false, {}, kMethod);
  std::vector<uint64_t> all;
  run_collectively(now, *comm_->launch_queue_, [&] { all = gather(uint64_t{size_bytes}); });
  // The allocation has room for the largest size.
  const auto memory = allocate_bytes(comm_->vendor_, device_,
                                     rounded_up(*std::max_element(all.begin(), all.end())));
  open(kMethod, memory.narrow(0, 0, static_cast<int64_t>(size_bytes)), /*owning=*/true);
}

void NcclWindow::tensor_register(const at::Tensor& tensor, bool owning) {
  open("tensor_register", tensor, owning);
}

void NcclWindow::tensor_deregister() {
  constexpr std::string_view kMethod = "tensor_deregister";
  const auto window = std::exchange(window_, nullptr);
  const auto keep = std::exchange(tensor_, std::nullopt);
  dtype_ = at::kFloat;
  shape_.clear();
  size_bytes_ = 0;
  const auto queue = queue_.lock();
  if (!queue || queue != comm_->launch_queue_) return;  // the former members cannot be asked
  const auto now = comm_->begin_call(OpName::new_window, /*async_op=*/false, {}, kMethod);
  run_collectively(now, *queue, [&] {
    // When all ranks have passed the barrier, all puts and waits on their streams are done.
    comm_->barrier(/*async_op=*/true, {})->hostSynchronize();
    bool done = !queue->has_live_graphs();
    if (auto* const waits = comm_->wait_queue_if_any(); waits != nullptr) {
      waits->poll(Clock::now());
      done = done && !waits->has_live_graphs() && waits->is_idle();
    }
    const auto all = gather(static_cast<uint8_t>(done));
    if (std::find(all.begin(), all.end(), 0) == all.end())
      queue->windows().close(queue->communicator(), window, launch_wait(now));
  });
}

std::shared_ptr<TorchCommWindow> NcclWindow::clone() {
  constexpr std::string_view kMethod = "clone";
  auto copy = std::make_shared<NcclWindow>(comm_);
  if (!window_) return copy;
  require_queue(kMethod);
  const PlainDispatchGuard plain;
  const auto memory = allocate_bytes(comm_->vendor_, device_, rounded_up(size_bytes_));
  const auto target =
      memory.narrow(0, 0, static_cast<int64_t>(size_bytes_)).view(dtype_).view(shape_);
  target.copy_(get_remote_tensor(comm_->rank_, shape_, dtype_, 0));
  copy->open(kMethod, target, /*owning=*/true);
  return copy;
}

template <class Body>
WorkPtr NcclWindow::enqueue_step(const NcclCall& now, const OperationOptions& options,
                                 const at::Tensor* tensor, const Body& body) {
  const at::Tensor none;
  return comm_->launch(*comm_->launch_queue_, now, options,
                       comm_->retain_storages(now, {{tensor != nullptr ? tensor : &none}, {}}),
                       body);
}

WorkPtr NcclWindow::enqueue_empty_step(const NcclCall& now, const OperationOptions& options) {
  return enqueue_step(now, options, nullptr,
                      [](const NcclLaunch&) { return abi::Result(abi::kSuccess); });
}

WorkPtr NcclWindow::put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems,
                        bool async_op, const PutOptions& options) {
  constexpr std::string_view kMethod = "put";
  auto& windows = require_queue(kMethod).windows();
  const auto part = window_->parts[static_cast<size_t>(dst_rank)];
  const auto offset = comms::with_context(
      [&] { return context(kMethod); },
      [&] {
        if (tensor.device() != device_)
          throw CommError(Errc::kInvalidArgument, "tensor is on " + tensor.device().str() +
                                                      ", the window on " + device_.str());
        return put_offset_bytes(tensor, target_offset_nelems, dst_rank, part.size_bytes);
      });
  const auto now = comm_->begin_call(OpName::new_window, async_op, options, kMethod);
  const auto into = part.offset_bytes + offset;
  const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
  const size_t bytes = tensor.nbytes();
  return comm_->log_window_call({kMethod, true, dst_rank, &tensor}, [&]() -> WorkPtr {
    if (bytes == 0) return enqueue_empty_step(now, options);
    const auto& runtime = comm_->launch_queue_->device().runtime();
    if (dst_rank == comm_->rank_)
      return enqueue_step(now, options, &tensor, [&](const NcclLaunch& launch) {
        runtime.copy_on_device(window_->begin + into, data, bytes, launch.stream);
        return abi::Result(abi::kSuccess);
      });
    const auto put_signal = [&](const NcclLaunch& launch, const char* from, size_t done,
                                size_t count) {
      return launch.library.PutSignal(from, count, abi::DataType::kUint8, dst_rank, window_->handle,
                                      into + done, 0, 0, 0, launch.comm, launch.stream);
    };
    if (windows.contains(data, bytes))
      return enqueue_step(now, options, &tensor, [&](const NcclLaunch& launch) {
        return put_signal(launch, data, 0, bytes);
      });
    // All graphs use the same bounce window.
    if (runtime.capture_of(comm_->launch_queue_->device().current_stream()) != 0)
      comm_->launch_queue_->serialize_with_graphs();
    WorkPtr last;
    for (size_t done = 0; done < bytes; done += kBounceBytes) {
      const size_t count = std::min(kBounceBytes, bytes - done);
      auto* const staging = windows.bounce_window->begin;
      last = enqueue_step(now, options, &tensor, [&](const NcclLaunch& launch) {
        runtime.copy_on_device(staging, data + done, count, launch.stream);
        return put_signal(launch, staging, done, count);
      });
    }
    return last;
  });
}

WorkPtr NcclWindow::signal(int peer_rank, bool async_op, const SignalOptions& options) {
  constexpr std::string_view kMethod = "signal";
  require_queue(kMethod);
  const auto now = comm_->begin_call(OpName::new_window, async_op, options, kMethod);
  return comm_->log_window_call({kMethod, true, peer_rank}, [&]() -> WorkPtr {
    if (peer_rank == comm_->rank_) {
      ++window_->pending_self_signals;
      return enqueue_empty_step(now, options);
    }
    auto& signal_communicator = *window_->signal_communicators[static_cast<size_t>(
        signal_communicator_index(comm_->rank_, peer_rank, comm_->size_))];
    return enqueue_step(now, options, nullptr, [&](const NcclLaunch& launch) {
      signal_communicator.call(
          [&](const VendorLibrary& library, abi::Comm comm) {
            return library.Signal(peer_rank, 0, 0, 0, comm, launch.stream);
          },
          [&now] { return launch_wait(now); });
      return abi::Result(abi::kSuccess);
    });
  });
}

WorkPtr NcclWindow::wait_signal(int peer_rank, bool async_op, const WaitSignalOptions& options) {
  constexpr std::string_view kMethod = "wait_signal";
  require_queue(kMethod);
  const auto now = comm_->begin_call(OpName::new_window, async_op, options, kMethod);
  return comm_->log_window_call({kMethod, false, peer_rank}, [&]() -> WorkPtr {
    if (peer_rank == comm_->rank_) {
      if (window_->pending_self_signals == 0)
        throw CommError(Errc::kUnsupported,
                        "this rank waits for its own signal, which it has not sent; with " +
                            std::string(comm_->vendor_.library) +
                            " it must be sent before the wait",
                        now.context(peer_rank));
      --window_->pending_self_signals;
      return enqueue_empty_step(now, options);
    }
    auto& signal_communicator = *window_->signal_communicators[static_cast<size_t>(
        signal_communicator_index(peer_rank, comm_->rank_, comm_->size_))];
    return comm_->launch(comm_->wait_queue(), now, options, {}, [&](const NcclLaunch& launch) {
      abi::WaitSignalDesc one{.count = 1, .peer = peer_rank, .index = 0, .context = 0};
      signal_communicator.call(
          [&](const VendorLibrary& library, abi::Comm comm) {
            return library.WaitSignal(1, &one, comm, launch.stream);
          },
          [&now] { return launch_wait(now); });
      return abi::Result(abi::kSuccess);
    });
  });
}

std::shared_ptr<TorchCommWindowAttr> NcclWindow::get_attr(int) {
  require_queue("get_attr");
  auto attr = std::make_shared<TorchCommWindowAttr>();
  attr->access_type = TorchCommWinAccessType::WIN_ACCESS_TYPE_SEPARATE;
  return attr;
}

char* NcclWindow::own_memory(std::string_view method, int rank) const {
  require_queue(method);
  if (rank == comm_->rank_)
    return window_->begin + window_->parts[static_cast<size_t>(rank)].offset_bytes;
  throw CommError(Errc::kUnsupported,
                  "the memory of rank " + std::to_string(rank) +
                      " can only be written by put(), because get_attr() gives SEPARATE",
                  context(method));
}

at::Tensor NcclWindow::map_remote_tensor(int rank) {
  constexpr std::string_view kMethod = "map_remote_tensor";
  own_memory(kMethod, rank);
  return tensor_ ? *tensor_ : get_remote_tensor(rank, shape_, dtype_, 0);
}

at::Tensor NcclWindow::get_remote_tensor(int rank, const std::vector<int64_t>& sizes,
                                         at::ScalarType dtype, int64_t offset_nelems) {
  constexpr std::string_view kMethod = "get_tensor";
  auto* const memory = own_memory(kMethod, rank);
  const auto begin = comms::with_context(
      [&] { return context(kMethod); },
      [&] { return view_offset_bytes(sizes, dtype, offset_nelems, rank, size_bytes_); });
  const PlainDispatchGuard plain;
  const auto options = at::TensorOptions().dtype(dtype).device(device_);
  return at::from_blob(
      memory + begin, sizes, [window = window_, own = tensor_](void*) {}, options, device_);
}

}  // namespace torch::comms::nccl

namespace torch::comms {

std::shared_ptr<nccl::NcclWindow> NcclApiBackend::make_window(const char* method) {
  const Context context{.op = method, .comm = name_, .rank = rank_};
  if (!library_) throw CommError(Errc::kFinalized, "the communicator is not initialized", context);
  with_context(context, [&] {
    library_->require_one_sided(("new_window() of backend '" + backend_ + "'").c_str());
  });
  return std::make_shared<nccl::NcclWindow>(shared_from_this());
}

std::shared_ptr<TorchCommWindow> NcclApiBackend::new_window(
    const std::optional<at::Tensor>& tensor) {
  auto window = make_window("new_window");
  if (tensor) window->tensor_register(*tensor, /*owning=*/true);
  return window;
}

std::shared_ptr<TorchCommWindow> NcclApiBackend::window_allocate(size_t size_bytes, bool cpu_buf,
                                                                 size_t) {
  auto window = make_window("window_allocate");
  if (cpu_buf && !device_.is_cpu())
    throw CommError(Errc::kUnsupported,
                    "cpu_buf=True: windows of this backend are on " + device_.str(),
                    {.op = "window_allocate", .comm = name_, .rank = rank_});
  window->allocate(size_bytes);
  return window;
}

at::Tensor NcclApiBackend::gather_bytes(std::span<const std::byte> own,
                                        const OperationOptions& options) {
  const PlainDispatchGuard plain;
  const auto input = at::from_blob(const_cast<std::byte*>(own.data()),
                                   {static_cast<int64_t>(own.size())}, at::kByte)
                         .to(device_, at::kByte, /*non_blocking=*/false, /*copy=*/true);
  auto output = at::empty({input.numel() * size_}, input.options());
  NcclApiBackend::all_gather_single(output, input, /*async_op=*/true, {options})->hostSynchronize();
  return output.to(at::kCPU);
}

WorkPtr NcclApiBackend::log_window_call(const WindowCall& call,
                                        const std::function<WorkPtr()>& body) {
  if (!collective_log_) return body();
  monitor::NonCollectiveCall entry;
  call.name.copy(entry.name, sizeof entry.name - 1);
  entry.peer = call.peer;
  entry.sends = call.is_outgoing ? 1 : 0;
  entry.messages = call.tensor != nullptr ? 1 : 0;
  entry.bytes = call.tensor != nullptr ? call.tensor->nbytes() : 0;
  collective_log_->on_window_begin(entry);
  WorkPtr work;
  try {
    work = body();
  } catch (...) {
    collective_log_->on_window_end();
    throw;
  }
  work->registerWorkEndHook([record = collective_log_] { record->on_window_end(); });
  return work;
}

}  // namespace torch::comms
