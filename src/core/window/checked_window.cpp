#include "core/window/checked_window.hpp"

#include <string>
#include <type_traits>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "core/observe/profiler_record.hpp"

namespace torch::comms {
namespace {

class CheckedWindow final : public TorchCommWindow {
 public:
  CheckedWindow(std::shared_ptr<TorchCommWindow> inner, WindowGuard guard, bool registered)
      : inner_(std::move(inner)), guard_(std::move(guard)), registered_(registered) {
    copy_attributes();
  }

  void tensor_register(const at::Tensor& tensor, bool owning) override {
    const WindowCallScope call(guard_, "tensor_register");
    if (registered_) call.refuse("a tensor is registered already; deregister it first");
    validate_window_tensor(call.method, tensor, call.comm);
    run_observed([&] { inner_->tensor_register(tensor, owning); });
    registered_ = true;
    copy_attributes();
  }

  void tensor_deregister() override {
    const WindowCallScope call(guard_, "tensor_deregister");
    require_registered(call);
    // The window counts as deregistered even if this fails: a failure ends the communicator, and
    // the memory is not used any more.
    registered_ = false;
    try {
      run_observed([&] { inner_->tensor_deregister(); });
    } catch (...) {
      copy_attributes();
      throw;
    }
    copy_attributes();
  }

  std::shared_ptr<TorchCommWindow> clone() override {
    const WindowCallScope call(guard_, "clone");
    return checked_window(run_observed([&] { return inner_->clone(); }), guard_, registered_);
  }

  WorkPtr put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems, bool async_op,
              const PutOptions& options) override {
    const WindowCallScope call(guard_, "put");
    check(call, "dst_rank", dst_rank, options);
    validate_window_tensor(call.method, tensor, call.comm);
    const ProfilerRecord profiled([&] {
      auto put = profiler_metadata(call, dst_rank, async_op);
      put.elements_in = static_cast<uint64_t>(tensor.numel());
      put.dtype = tensor.scalar_type();
      put.input = {tensor};
      return put;
    });
    return run_armed(
        [&] { return inner_->put(tensor, dst_rank, target_offset_nelems, async_op, options); });
  }
  WorkPtr signal(int peer_rank, bool async_op, const SignalOptions& options) override {
    const WindowCallScope call(guard_, "signal");
    check(call, "peer_rank", peer_rank, options);
    const ProfilerRecord profiled([&] { return profiler_metadata(call, peer_rank, async_op); });
    return run_armed([&] { return inner_->signal(peer_rank, async_op, options); });
  }
  WorkPtr wait_signal(int peer_rank, bool async_op, const WaitSignalOptions& options) override {
    const WindowCallScope call(guard_, "wait_signal");
    check(call, "peer_rank", peer_rank, options);
    const ProfilerRecord profiled([&] { return profiler_metadata(call, peer_rank, async_op); });
    return run_armed([&] { return inner_->wait_signal(peer_rank, async_op, options); });
  }
  at::Tensor map_remote_tensor(int rank) override {
    const WindowCallScope call(guard_, "map_remote_tensor");
    check(call, "rank", rank, {});
    return run_observed([&] { return inner_->map_remote_tensor(rank); });
  }
  std::shared_ptr<TorchCommWindowAttr> get_attr(int peer_rank) override {
    const WindowCallScope call(guard_, "get_attr");
    check(call, "peer_rank", peer_rank, {});
    return run_observed([&] { return inner_->get_attr(peer_rank); });
  }

  WorkPtr signal_slot(size_t slot, uint64_t value, int dst_rank, bool async_op,
                      const SignalOptions& options) override {
    const WindowCallScope call(guard_, "signal");
    check(call, "dst_rank", dst_rank, options);
    const ProfilerRecord profiled([&] { return profiler_metadata(call, dst_rank, async_op); });
    return run_armed([&] { return inner_->signal_slot(slot, value, dst_rank, async_op, options); });
  }
  WorkPtr wait_slot(size_t slot, uint64_t value, SignalCmpOp compare, bool async_op,
                    const WaitSignalOptions& options) override {
    const WindowCallScope call(guard_, "wait_signal");
    require_registered(call);
    validate_window_timeout(call.method, options.timeout, call.comm);
    const ProfilerRecord profiled(
        [&] { return profiler_metadata(call, call.comm.rank, async_op); });
    return run_armed([&] { return inner_->wait_slot(slot, value, compare, async_op, options); });
  }
  at::Tensor get_remote_tensor(int rank, const std::vector<int64_t>& sizes, at::ScalarType dtype,
                               int64_t offset_nelems) override {
    const WindowCallScope call(guard_, "get_tensor");
    check(call, "rank", rank, {});
    for (const auto size : sizes)
      if (size < 0) call.refuse("sizes has " + std::to_string(size) + ", allowed is 0 or more");
    if (offset_nelems < 0)
      call.refuse("offset is " + std::to_string(offset_nelems) + ", allowed is 0 or more");
    return run_observed(
        [&] { return inner_->get_remote_tensor(rank, sizes, dtype, offset_nelems); });
  }

  int64_t get_device_window(int signal_count, int counter_count, int barrier_count) override {
    const WindowCallScope call(guard_, "get_device_window");
    require_registered(call);
    return run_observed(
        [&] { return inner_->get_device_window(signal_count, counter_count, barrier_count); });
  }
  int64_t register_local_buffer(const at::Tensor& tensor) override {
    const WindowCallScope call(guard_, "register_local_buffer");
    require_registered(call);
    validate_window_tensor(call.method, tensor, call.comm);
    return run_observed([&] { return inner_->register_local_buffer(tensor); });
  }
  void deregister_local_buffer(int64_t handle) override {
    const WindowCallScope call(guard_, "deregister_local_buffer");
    run_observed([&] { inner_->deregister_local_buffer(handle); });
  }
  int64_t get_nvlink_address(int peer, uint64_t offset_bytes) override {
    const WindowCallScope call(guard_, "get_nvlink_address");
    check(call, "peer", peer, {});
    return run_observed([&] { return inner_->get_nvlink_address(peer, offset_bytes); });
  }
  int64_t get_multimem_address(uint64_t offset_bytes) override {
    const WindowCallScope call(guard_, "get_multimem_address");
    require_registered(call);
    return run_observed([&] { return inner_->get_multimem_address(offset_bytes); });
  }

 private:
  // The scope of one method call.
  struct WindowCallScope {
    WindowCallScope(const WindowGuard& guard, std::string_view method)
        : method(method), scope(guard.active_calls), comm(guard.require_usable(method)) {}
    [[noreturn]] void refuse(const std::string& why) const {
      throw CommError(Errc::kInvalidArgument, why,
                      {.op = std::string(method), .comm = comm.name, .rank = comm.rank});
    }

    const std::string_view method;
    const ActiveCalls::CallScope scope;  // entered before the state of the communicator is checked
    const CommFacts comm;
  };
  // Runs a call of the backend. An error that it throws counts as observed.
  template <class Body>
  std::invoke_result_t<Body> run_observed(const Body& body) const {
    try {
      return body();
    } catch (...) {
      if (guard_.failure_guard) guard_.failure_guard->mark_observed();
      throw;
    }
  }
  // Runs an operation of the backend, and arms the failure guard for its later failure.
  template <class Body>
  WorkPtr run_armed(const Body& body) const {
    auto work = run_observed(body);
    if (guard_.failure_guard) guard_.failure_guard->arm_on_failure(*work);
    return work;
  }
  ProfiledOperation profiler_metadata(const WindowCallScope& call, int rank, bool async_op) const {
    ProfiledOperation described;
    described.name = call.method;
    described.comm = call.comm.name;
    described.backend = call.comm.backend;
    described.rank = rank;
    described.size = call.comm.size;
    described.is_message = true;
    described.async_op = async_op;
    described.dtype = dtype_;
    return described;
  }
  void require_registered(const WindowCallScope& call) const {
    if (!registered_) call.refuse("no tensor is registered; call tensor_register() first");
  }
  void check(const WindowCallScope& call, const char* what, int rank,
             const OperationOptions& options) const {
    require_registered(call);
    validate_window_rank(call.method, what, rank, call.comm);
    validate_window_timeout(call.method, options.timeout, call.comm);
  }
  void copy_attributes() {
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
