// A backend in a library of its own: it moves data through torch's key-value store. Slow, but
// complete enough for DistributedDataParallel. CMakeLists.txt beside it says how to build and use
// it.

#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torchcomms/backend.hpp>
#include <torchcomms/base/launcher.hpp>
#include <torchcomms/factory.hpp>
#include <torchcomms/store_manager.hpp>

namespace {
using namespace torch::comms;

// Where the ranks meet for one operation: keys in the store that nobody else uses. By value, since
// an asynchronous operation may outlive the call.
struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;
  int rank, size;
  std::string name;

  std::string key(int of) const { return name + "/" + std::to_string(of); }

  void publish(const at::Tensor& tensor) const {
    const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
    store->set(key(rank), std::vector<uint8_t>(bytes, bytes + tensor.nbytes()));
  }

  // Waits until rank `of` has published.
  void read(int of, at::Tensor& tensor) const {
    const auto bytes = store->get(key(of));
    TORCH_CHECK(bytes.size() == tensor.nbytes(), name, ": rank ", of, " has ", bytes.size(),
                " bytes, rank ", rank, " has ", tensor.nbytes());
    if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  }

  // The last one to leave cleans up.
  void leave() const {
    if (store->add(name, 1) != size) return;
    for (int of = 0; of < size; ++of) store->deleteKey(key(of));
    store->deleteKey(name);
  }
};

class KeyValue final : public TorchCommBackend {
 public:
  void init(at::Device device, const std::string& name, const CommOptions& options) override {
    device_ = device;
    name_ = name;
    options_ = options;
    std::tie(rank_, size_) = query_ranksize();
    if (options.store)
      store_ = c10::make_intrusive<c10d::PrefixStore>(name, options.store);
    else
      store_ = createPrefixStore(name, options.timeout);
  }
  // Rank 0 may be the one that serves the store: it goes last.
  void finalize() override {
    if (store_->add("gone", 1) == size_) store_->set("all gone", std::string("yes"));
    if (rank_ == 0) store_->wait({"all gone"});
  }
  int getRank() const override { return rank_; }
  int getSize() const override { return size_; }
  std::string_view getBackendName() const override { return "kv"; }
  std::string_view getCommName() const override { return name_; }
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return device_; }

  Capabilities capabilities() const override {
    Capabilities can;
    for (OpName op : {OpName::broadcast, OpName::all_reduce, OpName::all_gather, OpName::barrier})
      can.operations.set(static_cast<size_t>(op));
    can.reduce_ops.set(static_cast<size_t>(RedOpType::SUM));
    can.dtypes.set();
    can.devices.set(static_cast<size_t>(at::kCPU));
    return can;
  }

  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op, const BroadcastOptions&) override {
    return run(async_op, [tensor, root](const Meeting& meeting) mutable {
      if (meeting.rank == root)
        meeting.publish(tensor);
      else
        meeting.read(root, tensor);
    });
  }
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp&, bool async_op,
                     const AllReduceOptions&) override {
    return run(async_op, [tensor](const Meeting& meeting) mutable {
      meeting.publish(tensor);
      at::Tensor other = at::empty_like(tensor);
      meeting.read(0, tensor);  // in rank order, so that all ranks get the same bits
      for (int of = 1; of < meeting.size; ++of) {
        meeting.read(of, other);
        tensor.add_(other);
      }
    });
  }
  WorkPtr all_gather(const Tensors& output, const at::Tensor& input, bool async_op,
                     const AllGatherOptions&) override {
    return run(async_op, [output = std::vector<at::Tensor>(output.begin(), output.end()),
                          input](const Meeting& meeting) mutable {
      meeting.publish(input);
      for (int of = 0; of < meeting.size; ++of) meeting.read(of, output[of]);
    });
  }
  WorkPtr barrier(bool async_op, const BarrierOptions&) override {
    return run(async_op, [nothing = at::empty(0)](const Meeting& meeting) mutable {
      meeting.publish(nothing);
      for (int of = 0; of < meeting.size; ++of) meeting.read(of, nothing);
    });
  }

  // Not in capabilities(), so never called.
  WorkPtr send(const at::Tensor&, int, bool, const SendOptions&) override { return {}; }
  WorkPtr recv(at::Tensor&, int, bool, const RecvOptions&) override { return {}; }
  WorkPtr batch_op_issue(const std::vector<P2POp>&, bool, const BatchP2POptions&) override {
    return {};
  }
  WorkPtr reduce(at::Tensor&, int, const ReduceOp&, bool, const ReduceOptions&) override {
    return {};
  }
  WorkPtr all_gather_v(const Tensors&, const at::Tensor&, bool, const AllGatherOptions&) override {
    return {};
  }
  WorkPtr all_gather_single(at::Tensor&, const at::Tensor&, bool,
                            const AllGatherSingleOptions&) override {
    return {};
  }
  WorkPtr reduce_scatter(at::Tensor&, const Tensors&, const ReduceOp&, bool,
                         const ReduceScatterOptions&) override {
    return {};
  }
  WorkPtr reduce_scatter_v(at::Tensor&, const Tensors&, const ReduceOp&, bool,
                           const ReduceScatterOptions&) override {
    return {};
  }
  WorkPtr reduce_scatter_single(at::Tensor&, const at::Tensor&, const ReduceOp&, bool,
                                const ReduceScatterSingleOptions&) override {
    return {};
  }
  WorkPtr all_to_all_single(at::Tensor&, const at::Tensor&, bool,
                            const AllToAllSingleOptions&) override {
    return {};
  }
  WorkPtr all_to_all_v_single(at::Tensor&, const at::Tensor&, const Splits&, const Splits&, bool,
                              const AllToAllvSingleOptions&) override {
    return {};
  }
  WorkPtr all_to_all(const Tensors&, const Tensors&, bool, const AllToAllOptions&) override {
    return {};
  }
  WorkPtr scatter(at::Tensor&, const Tensors&, int, bool, const ScatterOptions&) override {
    return {};
  }
  WorkPtr gather(const Tensors&, const at::Tensor&, int, bool, const GatherOptions&) override {
    return {};
  }
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>&, const std::string&,
                                          const CommOptions&) override {
    return nullptr;
  }

 private:
  WorkPtr run(bool async_op, std::function<void(const Meeting&)> body) {
    auto meet = [meeting = Meeting{store_, rank_, size_, std::to_string(operations_++)},
                 body = std::move(body)] {
      body(meeting);
      meeting.leave();
    };
    if (async_op) return c10::make_intrusive<TorchWorkThread>(std::move(meet));
    meet();
    return completedWork();
  }

  at::Device device_{at::kCPU};
  std::string name_;
  CommOptions options_;
  int rank_ = 0, size_ = 1;
  c10::intrusive_ptr<c10d::Store> store_;
  uint64_t operations_ = 0;  // every rank issues them in the same order: they meet by number
};

}  // namespace

extern "C" TC_API DynamicLoaderInterface create_dynamic_loader_kv() {
  return {[]() -> TorchCommBackend* { return new KeyValue; },
          [](TorchCommBackend* backend) { delete backend; },
          [] { return TORCHCOMM_BACKEND_ABI_VERSION; }};
}
