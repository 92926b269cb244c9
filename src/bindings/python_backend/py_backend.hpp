#pragma once

#include <type_traits>

#include <torch/csrc/utils/pybind.h>
#include <torchcomms/backend.hpp>

#include "bindings/gil.hpp"
#include "bindings/python_backend/py_work.hpp"

namespace torch::comms::bindings {

// A backend that is written in Python. Every call goes to the Python method of the same name, with
// positional arguments and without hints and timeout.
// Throws: CommError(kUnsupported), which names the method, if the class does not define it.
class PyBackend : public TorchCommBackend {
 public:
  // Returns: a new instance of backend class `type`.
  static std::shared_ptr<TorchCommBackend> create(const py::object& type);

  void init(at::Device device, const std::string& name, const CommOptions& options) override;
  void finalize() override { call_void("finalize"); }
  int getRank() const override { return call<int>("get_rank"); }
  int getSize() const override { return call<int>("get_size"); }
  std::string_view getBackendName() const override;
  std::string_view getCommName() const override;
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return device_; }
  Capabilities capabilities() const override;
  bool isInitialized() const override;

  WorkPtr send(const at::Tensor& tensor, int dst, bool async_op, const SendOptions&) override {
    return work("send", tensor, dst, async_op);
  }
  WorkPtr recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions&) override {
    return work("recv", tensor, src, async_op);
  }
  WorkPtr batch_op_issue(const std::vector<P2POp>&, bool, const BatchP2POptions&) override;
  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op, const BroadcastOptions&) override {
    return work("broadcast", tensor, root, async_op);
  }
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                     const AllReduceOptions&) override {
    return work("all_reduce", tensor, op, async_op);
  }
  WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                 const ReduceOptions&) override {
    return work("reduce", tensor, root, op, async_op);
  }
  WorkPtr all_gather(const Tensors& output, const at::Tensor& input, bool async_op,
                     const AllGatherOptions&) override {
    return work("all_gather", output, input, async_op);
  }
  WorkPtr all_gather_v(const Tensors& output, const at::Tensor& input, bool async_op,
                       const AllGatherOptions&) override {
    return work("all_gather_v", output, input, async_op);
  }
  WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllGatherSingleOptions&) override {
    return work("all_gather_single", output, input, async_op);
  }
  WorkPtr reduce_scatter(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                         bool async_op, const ReduceScatterOptions&) override {
    return work("reduce_scatter", output, input, op, async_op);
  }
  WorkPtr reduce_scatter_v(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                           bool async_op, const ReduceScatterOptions&) override {
    return work("reduce_scatter_v", output, input, op, async_op);
  }
  WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                bool async_op, const ReduceScatterSingleOptions&) override {
    return work("reduce_scatter_single", output, input, op, async_op);
  }
  WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllToAllSingleOptions&) override {
    return work("all_to_all_single", output, input, async_op);
  }
  WorkPtr all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                              const Splits& output_splits, const Splits& input_splits,
                              bool async_op, const AllToAllvSingleOptions&) override {
    return work("all_to_all_v_single", output, input, output_splits, input_splits, async_op);
  }
  WorkPtr all_to_all(const Tensors& output, const Tensors& input, bool async_op,
                     const AllToAllOptions&) override {
    return work("all_to_all", output, input, async_op);
  }
  WorkPtr barrier(bool async_op, const BarrierOptions&) override {
    return work("barrier", async_op);
  }
  WorkPtr scatter(at::Tensor& output, const Tensors& input, int root, bool async_op,
                  const ScatterOptions&) override {
    return work("scatter", output, input, root, async_op);
  }
  WorkPtr gather(const Tensors& output, const at::Tensor& input, int root, bool async_op,
                 const GatherOptions&) override {
    return work("gather", output, input, root, async_op);
  }

  // A child that was never initialized gets this backend's device, and `name` and `options`.
  // Throws: py::type_error if the result is neither a backend nor None.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;
  void setTimeout(std::chrono::milliseconds timeout) override { call_void("set_timeout", timeout); }

 private:
  // Returns: the Python method `method`; empty if the class does not define it. Needs the GIL.
  py::function find(const char* method) const;
  py::function require(const char* method) const;

  // Returns: a pointer to the C++ backend that keeps its Python instance alive. Needs the GIL.
  static std::shared_ptr<TorchCommBackend> wrap_instance(py::object instance);

  template <class... Args>
  WorkPtr work(const char* method, const Args&... args) const {
    const ScopedGilAcquire lock;
    return PyWork::from_result(method, require(method)(args...));
  }
  template <class Result, class... Args>
  Result call(const char* method, const Args&... args) const {
    const ScopedGilAcquire lock;
    return convert_result<Result>(method, require(method)(args...));
  }
  // Converts the result of Python method `method`. Throws: throw_wrong_result() for another type.
  // Needs the GIL.
  template <class Result>
  static Result convert_result(const char* method, const py::object& result) {
    py::detail::make_caster<Result> caster;
    if (!caster.load(result, /*convert=*/true))
      throw_wrong_result(method, result, std::is_same_v<Result, int> ? "int" : "str");
    return py::detail::cast_op<Result>(caster);
  }
  template <class... Args>
  void call_void(const char* method, const Args&... args) const {
    const ScopedGilAcquire lock;
    require(method)(args...);
  }

  void set_init_state(at::Device device, const std::string& name, const CommOptions& options);

  bool has_init_state_ =
      false;  // the members below are set, by init() or by the split() that returned this backend
  at::Device device_{at::kCPU};
  CommOptions options_;
  std::string init_name_;
  mutable std::string backend_name_, comm_name_;  // storage of the returned string_views
};

}  // namespace torch::comms::bindings
