#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <torchcomms/base/error.hpp>

#include "core/manual_backend.hpp"
#include "core/work/interruptible_call.hpp"

// What finalize() does while other threads are in calls of the communicator.
namespace torch::comms {
namespace {

// Every method runs `inside`.
class SlowWindow : public TorchCommWindow {
 public:
  explicit SlowWindow(const std::function<void()>& inside) : inside_(inside) {}

  void tensor_register(const at::Tensor&, bool) override { inside_(); }
  void tensor_deregister() override { inside_(); }
  std::shared_ptr<TorchCommWindow> clone() override {
    inside_();
    return std::make_shared<SlowWindow>(inside_);
  }
  WorkPtr put(const at::Tensor&, int, size_t, bool, const PutOptions&) override { return done(); }
  WorkPtr signal(int, bool, const SignalOptions&) override { return done(); }
  WorkPtr wait_signal(int, bool, const WaitSignalOptions&) override { return done(); }
  WorkPtr signal_slot(size_t, uint64_t, int, bool, const SignalOptions&) override { return done(); }
  WorkPtr wait_slot(size_t, uint64_t, SignalCmpOp, bool, const WaitSignalOptions&) override {
    return done();
  }
  at::Tensor map_remote_tensor(int) override { return view(); }
  at::Tensor get_remote_tensor(int, const std::vector<int64_t>&, at::ScalarType, int64_t) override {
    return view();
  }
  std::shared_ptr<TorchCommWindowAttr> get_attr(int) override {
    inside_();
    return std::make_shared<TorchCommWindowAttr>();
  }
  int64_t get_device_window(int, int, int) override { return address(); }
  int64_t register_local_buffer(const at::Tensor&) override { return address(); }
  void deregister_local_buffer(int64_t) override { inside_(); }
  int64_t get_nvlink_address(int, uint64_t) override { return address(); }
  int64_t get_multimem_address(uint64_t) override { return address(); }

 private:
  WorkPtr done() {
    inside_();
    return completedWork();
  }
  at::Tensor view() {
    inside_();
    return at::ones({1});
  }
  int64_t address() {
    inside_();
    return 0;
  }

  const std::function<void()>& inside_;
};

// What may take long runs `inside`, and finalize() runs `at_finalize`.
class SlowBackend : public ManualBackend {
 public:
  using ManualBackend::ManualBackend;
  std::function<void()> inside = [] {}, at_finalize = [] {};

  void finalize() override { at_finalize(); }
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>&) override {
    return std::make_shared<SlowWindow>(inside);
  }
  WorkPtr reconfigure(const ReconfigureOptions&) override {
    inside();
    return completedWork();
  }
  void setTimeout(std::chrono::milliseconds) override { inside(); }
  void setHints(const Hints&) override { inside(); }
  void tensor_register(const at::Tensor&) override { inside(); }
  void tensor_deregister(const at::Tensor&) override { inside(); }
  void all_gather_p_free(AllGatherPHandle) override { inside(); }
  int64_t get_device_transport() override {
    inside();
    return 0;
  }
  std::vector<std::string> links() const override {
    inside();
    return {"self"};
  }
};

struct SlowComm {
  const std::shared_ptr<SlowBackend> backend = std::make_shared<SlowBackend>("slow");
  const std::shared_ptr<TorchComm> comm = TorchComm::wrap(backend, "manual");
  const std::shared_ptr<TorchCommWindow> window = comm->new_window(at::ones({1}));
};

struct Call {
  std::string_view name;
  std::function<void(SlowComm&)> run;
};

const std::vector<Call>& calls() {
  static const at::Tensor tensor = at::ones({1});
  static const std::vector<Call> all{
      {"tensor_register", [](auto& its) { its.comm->new_window()->tensor_register(tensor); }},
      {"tensor_deregister", [](auto& its) { its.window->tensor_deregister(); }},
      {"clone", [](auto& its) { its.window->clone(); }},
      {"put", [](auto& its) { its.window->put(tensor, 0, 0, false); }},
      {"signal", [](auto& its) { its.window->signal(0, false); }},
      {"wait_signal", [](auto& its) { its.window->wait_signal(0, false); }},
      {"signal_slot", [](auto& its) { its.window->signal_slot(0, 1, 0, false); }},
      {"wait_slot", [](auto& its) { its.window->wait_slot(0, 1, SignalCmpOp::EQ, false); }},
      {"map_remote_tensor", [](auto& its) { its.window->map_remote_tensor(0); }},
      {"get_remote_tensor",
       [](auto& its) { its.window->get_remote_tensor(0, {1}, at::kFloat, 0); }},
      {"get_attr", [](auto& its) { its.window->get_attr(0); }},
      {"get_device_window", [](auto& its) { its.window->get_device_window(); }},
      {"register_local_buffer", [](auto& its) { its.window->register_local_buffer(tensor); }},
      {"deregister_local_buffer", [](auto& its) { its.window->deregister_local_buffer(1); }},
      {"get_nvlink_address", [](auto& its) { its.window->get_nvlink_address(0); }},
      {"get_multimem_address", [](auto& its) { its.window->get_multimem_address(); }},
      {"reconfigure", [](auto& its) { its.comm->reconfigure({}); }},
      {"setTimeout", [](auto& its) { its.comm->setTimeout(std::chrono::seconds(1)); }},
      {"setHints", [](auto& its) { its.comm->setHints({}); }},
      {"comm's tensor_register", [](auto& its) { its.comm->tensor_register(tensor); }},
      {"comm's tensor_deregister", [](auto& its) { its.comm->tensor_deregister(tensor); }},
      {"all_gather_p_free", [](auto& its) { its.comm->all_gather_p_free(nullptr); }},
      {"get_device_transport", [](auto& its) { its.comm->get_device_transport(); }},
  };
  return all;
}

// Another thread calls finalize() while `call` is in the backend.
void expect_waited_for(const Call& call) {
  SCOPED_TRACE(call.name);
  SlowComm its;
  std::promise<void> waits_or_is_done;
  std::once_flag once;
  const auto tell = [&] { std::call_once(once, [&] { waits_or_is_done.set_value(); }); };
  set_interrupt_check(tell);  // which runs while finalize() waits
  std::atomic<bool> is_done = false;
  its.backend->at_finalize = [&] {
    is_done = true;
    tell();
  };
  std::thread other;
  its.backend->inside = [&] {
    other = std::thread([&] { its.comm->finalize(); });
    waits_or_is_done.get_future().wait();
    EXPECT_FALSE(is_done);
  };
  call.run(its);
  ASSERT_TRUE(other.joinable());
  other.join();
  EXPECT_TRUE(is_done);
  set_interrupt_check({});
}

TEST(Finalize, WaitsUntilNobodyElseIsInACall) {
  for (const auto& call : calls()) expect_waited_for(call);
  expect_waited_for({"getBackendFacts",
                     [](auto& its) { EXPECT_EQ(its.comm->getBackendFacts().links.size(), 1u); }});
}

TEST(Finalize, TurnsAwayWhoComesWhenItHasBegun) {
  for (const auto& call : calls()) {
    SCOPED_TRACE(call.name);
    SlowComm its;
    its.backend->inside = [] { ADD_FAILURE() << "it is in the backend"; };
    int refused = 0;
    its.backend->at_finalize = [&] {
      try {
        call.run(its);
      } catch (const CommError& e) {
        EXPECT_EQ(e.code(), Errc::kFinalized) << e.what();
        ++refused;
      }
      EXPECT_TRUE(its.comm->getBackendFacts().links.empty());
    };
    its.comm->finalize();
    EXPECT_EQ(refused, 1);
  }
}

TEST(Finalize, HappensOnceThoughAHookCallsItToo) {
  SlowComm its;
  int ends = 0, refused = 0;
  its.backend->at_finalize = [&] { ++ends; };
  bool first = true;
  its.comm->registerPreHook([&](size_t, const PreHookArgs&) {
    if (std::exchange(first, false)) its.comm->finalize();
  });
  try {
    its.comm->finalize();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kFinalized);
    ++refused;
  }
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(refused, 1);
}

TEST(Finalize, LetsGoOfTheHooksAroundOperations) {
  SlowComm its;
  int before = 0, after = 0;
  const auto kept = std::make_shared<int>();
  auto handle = its.comm->registerPreHook([&, kept](size_t, const PreHookArgs&) { ++before; });
  its.comm->registerPostHook([&, kept](size_t, const PostHookArgs&) { ++after; });
  its.comm->finalize();
  EXPECT_EQ(before, 1);
  EXPECT_EQ(after, 1);
  EXPECT_EQ(kept.use_count(), 1);
  handle->remove();
}

}  // namespace
}  // namespace torch::comms
