#include "core/checked_window.hpp"

#include <torchcomms/base/error.hpp>

#include "core/profiler_record.hpp"

namespace torch::comms {
namespace {

class CheckedWindow final : public TorchCommWindow {
 public:
  CheckedWindow(std::shared_ptr<TorchCommWindow> inner, WindowGuard guard, bool registered)
      : inner_(std::move(inner)), guard_(std::move(guard)), registered_(registered) {
    mirror();
  }

  void tensor_register(const at::Tensor& tensor, bool owning) override {
    constexpr std::string_view kMethod = "tensor_register";
    const auto comm = guard_(kMethod);
    if (registered_) refuse(kMethod, comm, "a tensor is registered already; deregister it first");
    validate_window_tensor(kMethod, tensor, comm);
    inner_->tensor_register(tensor, owning);
    registered_ = true;
    mirror();
  }

  void tensor_deregister() override {
    require_registered("tensor_deregister");
    // Whatever comes of it: a failure ends the communicator, and the memory is not used any more.
    registered_ = false;
    try {
      inner_->tensor_deregister();
    } catch (...) {
      mirror();
      throw;
    }
    mirror();
  }

  std::shared_ptr<TorchCommWindow> clone() override {
    guard_("clone");
    return checked_window(inner_->clone(), guard_, registered_);
  }

  WorkPtr put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems, bool async_op,
              const PutOptions& options) override {
    const auto comm = check("put", "dst_rank", dst_rank, options);
    validate_window_tensor("put", tensor, comm);
    const ProfilerRecord profiled([&] {
      auto put = shown("put", dst_rank, async_op, comm);
      put.elements_in = static_cast<uint64_t>(tensor.numel());
      put.dtype = tensor.scalar_type();
      put.input = {tensor};
      return put;
    });
    return inner_->put(tensor, dst_rank, target_offset_nelems, async_op, options);
  }
  WorkPtr signal(int peer_rank, bool async_op, const SignalOptions& options) override {
    const auto comm = check("signal", "peer_rank", peer_rank, options);
    const ProfilerRecord profiled([&] { return shown("signal", peer_rank, async_op, comm); });
    return inner_->signal(peer_rank, async_op, options);
  }
  WorkPtr wait_signal(int peer_rank, bool async_op, const WaitSignalOptions& options) override {
    const auto comm = check("wait_signal", "peer_rank", peer_rank, options);
    const ProfilerRecord profiled([&] { return shown("wait_signal", peer_rank, async_op, comm); });
    return inner_->wait_signal(peer_rank, async_op, options);
  }
  at::Tensor map_remote_tensor(int rank) override {
    check("map_remote_tensor", "rank", rank, {});
    return inner_->map_remote_tensor(rank);
  }
  std::shared_ptr<TorchCommWindowAttr> get_attr(int peer_rank) override {
    check("get_attr", "peer_rank", peer_rank, {});
    return inner_->get_attr(peer_rank);
  }

  WorkPtr signal_slot(size_t slot, uint64_t value, int dst_rank, bool async_op,
                      const SignalOptions& options) override {
    const auto comm = check("signal", "dst_rank", dst_rank, options);
    const ProfilerRecord profiled([&] { return shown("signal", dst_rank, async_op, comm); });
    return inner_->signal_slot(slot, value, dst_rank, async_op, options);
  }
  WorkPtr wait_slot(size_t slot, uint64_t value, SignalCmpOp compare, bool async_op,
                    const WaitSignalOptions& options) override {
    const auto comm = require_registered("wait_signal");
    validate_window_timeout("wait_signal", options.timeout, comm);
    const ProfilerRecord profiled([&] { return shown("wait_signal", comm.rank, async_op, comm); });
    return inner_->wait_slot(slot, value, compare, async_op, options);
  }
  at::Tensor get_remote_tensor(int rank, const std::vector<int64_t>& sizes, at::ScalarType dtype,
                               int64_t offset_nelems) override {
    constexpr std::string_view kMethod = "get_tensor";
    const auto comm = check(kMethod, "rank", rank, {});
    for (const auto size : sizes)
      if (size < 0)
        refuse(kMethod, comm, "sizes has " + std::to_string(size) + ", allowed is 0 or more");
    if (offset_nelems < 0)
      refuse(kMethod, comm,
             "offset is " + std::to_string(offset_nelems) + ", allowed is 0 or more");
    return inner_->get_remote_tensor(rank, sizes, dtype, offset_nelems);
  }

  int64_t get_device_window(int signal_count, int counter_count, int barrier_count) override {
    require_registered("get_device_window");
    return inner_->get_device_window(signal_count, counter_count, barrier_count);
  }
  int64_t register_local_buffer(const at::Tensor& tensor) override {
    validate_window_tensor("register_local_buffer", tensor,
                           require_registered("register_local_buffer"));
    return inner_->register_local_buffer(tensor);
  }
  void deregister_local_buffer(int64_t handle) override {
    guard_("deregister_local_buffer");
    inner_->deregister_local_buffer(handle);
  }
  int64_t get_nvlink_address(int peer, uint64_t offset_bytes) override {
    check("get_nvlink_address", "peer", peer, {});
    return inner_->get_nvlink_address(peer, offset_bytes);
  }
  int64_t get_multimem_address(uint64_t offset_bytes) override {
    require_registered("get_multimem_address");
    return inner_->get_multimem_address(offset_bytes);
  }

 private:
  [[noreturn]] static void refuse(std::string_view method, const CommFacts& comm,
                                  const std::string& why) {
    throw CommError(Errc::kInvalidArgument, why,
                    {.op = std::string(method), .comm = comm.name, .rank = comm.rank});
  }
  ProfiledOperation shown(std::string_view name, int rank, bool async_op,
                          const CommFacts& comm) const {
    ProfiledOperation described;
    described.name = name;
    described.comm = comm.name;
    described.backend = comm.backend;
    described.rank = rank;
    described.size = comm.size;
    described.is_message = true;
    described.async_op = async_op;
    described.dtype = dtype_;
    return described;
  }
  CommFacts require_registered(std::string_view method) const {
    const auto comm = guard_(method);
    if (!registered_) refuse(method, comm, "no tensor is registered; call tensor_register() first");
    return comm;
  }
  CommFacts check(std::string_view method, const char* what, int rank,
                  const OperationOptions& options) const {
    const auto comm = require_registered(method);
    validate_window_rank(method, what, rank, comm);
    validate_window_timeout(method, options.timeout, comm);
    return comm;
  }
  void mirror() {
    tensor_ = inner_->get_tensor();
    dtype_ = inner_->getDtype();
    shape_ = inner_->getShape();
    device_ = inner_->getDevice();
    size_bytes_ = inner_->get_size();
  }

  const std::shared_ptr<TorchCommWindow> inner_;
  const WindowGuard guard_;
  bool registered_;
};

}  // namespace

std::shared_ptr<TorchCommWindow> checked_window(std::shared_ptr<TorchCommWindow> inner,
                                                WindowGuard guard, bool registered) {
  return std::make_shared<CheckedWindow>(std::move(inner), std::move(guard), registered);
}

}  // namespace torch::comms
