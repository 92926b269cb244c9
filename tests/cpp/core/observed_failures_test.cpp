#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <torchcomms/base/error.hpp>

#include "core/manual_backend.hpp"

// Which failures of a communicator the program is told of, and which finalize() is left to raise.
namespace torch::comms {
namespace {

CommError lost(Errc code = Errc::kPeerFailed) { return {code, "rank 1 has failed"}; }

// As a communicator's backend that fails as a whole: once `failed` all calls raise, asynchronous
// ones in their works, of which the last one is `work`.
class FailingBackend : public ManualBackend {
 public:
  FailingBackend() : ManualBackend("failing") {
    options_.abort_process_on_timeout_or_error = false;
  }
  bool failed = false;
  c10::intrusive_ptr<ManualWork> work;

  WorkPtr issue(bool async_op) {
    if (!async_op) {
      require();
      return completedWork();
    }
    work = c10::make_intrusive<ManualWork>();
    if (failed) fail_work();
    return work;
  }
  void fail_work(Errc code = Errc::kPeerFailed) {
    work->setStatus(WorkStatus::ERROR, std::make_exception_ptr(lost(code)));
  }
  void require() const {
    if (failed) throw lost();
  }

  Capabilities capabilities() const override {
    auto can = Capabilities::all();
    can.ends_process = true;
    return can;
  }
  const CommOptions& getOptions() const override { return options_; }
  WorkPtr all_reduce(at::Tensor&, const ReduceOp&, bool async_op,
                     const AllReduceOptions&) override {
    return issue(async_op);
  }
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override {
    require();
    return ManualBackend::split(ranks, name, options);
  }
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>&) override;

 private:
  CommOptions options_;
};

class FailingWindow : public TorchCommWindow {
 public:
  explicit FailingWindow(FailingBackend& backend) : backend_(backend) {}

  void tensor_register(const at::Tensor&, bool) override { backend_.require(); }
  void tensor_deregister() override { backend_.require(); }
  std::shared_ptr<TorchCommWindow> clone() override {
    backend_.require();
    return std::make_shared<FailingWindow>(backend_);
  }
  WorkPtr put(const at::Tensor&, int, size_t, bool async_op, const PutOptions&) override {
    return backend_.issue(async_op);
  }
  WorkPtr signal(int, bool async_op, const SignalOptions&) override {
    return backend_.issue(async_op);
  }
  WorkPtr wait_signal(int, bool async_op, const WaitSignalOptions&) override {
    return backend_.issue(async_op);
  }
  at::Tensor map_remote_tensor(int) override { return at::ones({1}); }
  std::shared_ptr<TorchCommWindowAttr> get_attr(int) override { return nullptr; }

 private:
  FailingBackend& backend_;
};

std::shared_ptr<TorchCommWindow> FailingBackend::new_window(const std::optional<at::Tensor>&) {
  require();
  return std::make_shared<FailingWindow>(*this);
}

struct FailingComm {
  const std::shared_ptr<FailingBackend> backend = std::make_shared<FailingBackend>();
  const std::shared_ptr<TorchComm> comm = TorchComm::wrap(backend, "manual");
  const std::shared_ptr<TorchCommWindow> window = comm->new_window(at::ones({1}));
  at::Tensor tensor = at::ones({1});

  WorkPtr all_reduce(bool async_op) { return comm->all_reduce(tensor, RedOpType::SUM, async_op); }
};

TEST(MetFailures, WhatACallRaisesIsMet) {
  const std::vector<std::pair<std::string, std::function<void(FailingComm&)>>> calls{
      {"all_reduce", [](auto& its) { its.all_reduce(false); }},
      {"split", [](auto& its) { its.comm->split({0}, "child"); }},
      {"new_window", [](auto& its) { its.comm->new_window(); }},
      {"tensor_deregister", [](auto& its) { its.window->tensor_deregister(); }},
      {"clone", [](auto& its) { its.window->clone(); }},
      {"put", [](auto& its) { its.window->put(its.tensor, 0, 0, false); }},
      {"signal", [](auto& its) { its.window->signal(0, false); }},
      {"wait_signal", [](auto& its) { its.window->wait_signal(0, false); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    FailingComm its;
    its.all_reduce(true);
    its.backend->failed = true;
    its.backend->fail_work();
    EXPECT_THROW(call(its), CommError);
    EXPECT_NO_THROW(its.comm->finalize());
  }
}

TEST(MetFailures, SoIsTheOneThatIsWaitedFor) {
  FailingComm its;
  const auto work = its.window->put(its.tensor, 0, 0, true);
  its.backend->fail_work();
  work->wait();  // the hooks are what counts
  EXPECT_NO_THROW(its.comm->finalize());
}

TEST(MetFailures, OfAnOperationThatNobodyWaitsForItIsNot) {
  const std::vector<std::pair<std::string, std::function<WorkPtr(FailingComm&)>>> calls{
      {"all_reduce", [](auto& its) { return its.all_reduce(true); }},
      {"put", [](auto& its) { return its.window->put(its.tensor, 0, 0, true); }},
      {"signal", [](auto& its) { return its.window->signal(0, true); }},
      {"wait_signal", [](auto& its) { return its.window->wait_signal(0, true); }},
  };
  for (const auto& [name, call] : calls)
    for (const bool at_once : {false, true}) {
      SCOPED_TRACE(name + (at_once ? " that has failed when the call returns" : ""));
      FailingComm its;
      its.backend->failed = at_once;
      const auto work = call(its);
      if (!at_once) its.backend->fail_work();
      EXPECT_THROW(its.comm->finalize(), CommError);
    }
}

TEST(MetFailures, AWaitOfAWindowThatWasClosedIsNone) {
  FailingComm its;
  const auto work = its.window->wait_signal(0, true);
  its.backend->fail_work(Errc::kInvalidArgument);
  EXPECT_NO_THROW(its.comm->finalize());
}

}  // namespace
}  // namespace torch::comms
