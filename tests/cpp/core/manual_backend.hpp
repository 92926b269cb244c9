#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <torchcomms/comm.hpp>

namespace torch::comms {

// A work that the test ends.
class ManualWork : public TorchWork {
 public:
  using TorchWork::setStatus;
  void wait() override {
    runWaitPreHooks();
    runWaitPostHooks();
  }
};

// Rank 0 of 1. Asynchronous all_reduces stay open until the test ends them, everything else is done
// at once; `connected` can be taken away.
class ManualBackend : public TorchCommBackend {
 public:
  explicit ManualBackend(std::string name) : name_(std::move(name)) {}

  std::vector<c10::intrusive_ptr<ManualWork>> works;
  bool connected = true;
  void fail() { runAbortHooks(); }

  void init(at::Device, const std::string&, const CommOptions&) override {}
  void finalize() override {}
  int getRank() const override { return 0; }
  int getSize() const override { return 1; }
  std::vector<int> getRanks() const override { return {40}; }
  bool isInitialized() const override { return connected; }
  std::string_view getBackendName() const override { return "manual"; }
  std::string_view getCommName() const override { return name_; }
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return device_; }
  WorkPtr reconfigure(const ReconfigureOptions&) override {
    connected = true;
    return completedWork();
  }
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>&, const std::string& name,
                                          const CommOptions&) override {
    return std::make_shared<ManualBackend>(name);
  }

  WorkPtr all_reduce(at::Tensor&, const ReduceOp&, bool async_op,
                     const AllReduceOptions&) override {
    if (!async_op) return completedWork();
    works.push_back(c10::make_intrusive<ManualWork>());
    return works.back();
  }
#define TC_DONE(method, ...) \
  WorkPtr method(__VA_ARGS__) override { return completedWork(); }
  TC_DONE(send, const at::Tensor&, int, bool, const SendOptions&)
  TC_DONE(recv, at::Tensor&, int, bool, const RecvOptions&)
  TC_DONE(batch_op_issue, const std::vector<P2POp>&, bool, const BatchP2POptions&)
  TC_DONE(broadcast, at::Tensor&, int, bool, const BroadcastOptions&)
  TC_DONE(reduce, at::Tensor&, int, const ReduceOp&, bool, const ReduceOptions&)
  TC_DONE(all_gather, const Tensors&, const at::Tensor&, bool, const AllGatherOptions&)
  TC_DONE(all_gather_v, const Tensors&, const at::Tensor&, bool, const AllGatherOptions&)
  TC_DONE(all_gather_single, at::Tensor&, const at::Tensor&, bool, const AllGatherSingleOptions&)
  TC_DONE(reduce_scatter, at::Tensor&, const Tensors&, const ReduceOp&, bool,
          const ReduceScatterOptions&)
  TC_DONE(reduce_scatter_v, at::Tensor&, const Tensors&, const ReduceOp&, bool,
          const ReduceScatterOptions&)
  TC_DONE(reduce_scatter_single, at::Tensor&, const at::Tensor&, const ReduceOp&, bool,
          const ReduceScatterSingleOptions&)
  TC_DONE(all_to_all_single, at::Tensor&, const at::Tensor&, bool, const AllToAllSingleOptions&)
  TC_DONE(all_to_all_v_single, at::Tensor&, const at::Tensor&, const Splits&, const Splits&, bool,
          const AllToAllvSingleOptions&)
  TC_DONE(all_to_all, const Tensors&, const Tensors&, bool, const AllToAllOptions&)
  TC_DONE(barrier, bool, const BarrierOptions&)
  TC_DONE(scatter, at::Tensor&, const Tensors&, int, bool, const ScatterOptions&)
  TC_DONE(gather, const Tensors&, const at::Tensor&, int, bool, const GatherOptions&)
#undef TC_DONE

 private:
  std::string name_;
  CommOptions options_;
  at::Device device_ = at::kCPU;
};

struct ManualComm {
  explicit ManualComm(const std::string& name, bool connected = true)
      : backend(std::make_shared<ManualBackend>(name)) {
    backend->connected = connected;
    comm = TorchComm::wrap(backend, "manual");
  }
  ManualWork& all_reduce() {
    comm->all_reduce(tensor, RedOpType::SUM, true);
    return *backend->works.back();
  }

  std::shared_ptr<ManualBackend> backend;
  std::shared_ptr<TorchComm> comm;
  at::Tensor tensor = at::ones({3});
};

}  // namespace torch::comms
