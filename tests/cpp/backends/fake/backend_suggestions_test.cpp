// What an error says of the backends that could.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <torchcomms/base/error.hpp>
#include <torchcomms/comm.hpp>
#include <torchcomms/factory.hpp>

#include "backends/fake/fake_backend.hpp"
#include "core/backend/backend_suggestions.hpp"

namespace torch::comms {
namespace {

// Checks arguments, and has the integers only where `kIntegers`, windows only where not.
template <bool kIntegers>
class Half : public TorchCommFake {
 public:
  Capabilities capabilities() const override {
    auto can = Capabilities::all();
    can.strict_arguments = true;
    can.windows = !kIntegers;
    if (!kIntegers) can.dtypes.reset(static_cast<size_t>(at::kInt));
    if (kIntegers) can.reduce_ops.reset(static_cast<size_t>(RedOpType::AVG));
    return can;
  }
  std::string_view getBackendName() const override { return kIntegers ? "whole" : "broken"; }
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor) override {
    return TorchCommBackend::new_window(tensor);
  }
};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    return error.why();
  }
  ADD_FAILURE() << "no CommError";
  return {};
}

TEST(Alternatives, AreTheInstalledBackendsThatStateWhatOneLacks) {
  auto& factory = TorchCommFactory::get();
  int found = 0;
  factory.set_discovery([&] {
    ++found;
    factory.register_backend("whole", [] { return std::make_shared<Half<true>>(); });
    factory.register_backend("broken", [] { return std::make_shared<Half<false>>(); });
    factory.register_backend(
        "unasked", []() -> std::shared_ptr<TorchCommBackend> { throw_internal("asked"); }, false);
    factory.register_backend("failing", []() -> std::shared_ptr<TorchCommBackend> {
      throw CommError(Errc::kSystem, "not here");
    });
  });
  EXPECT_EQ(backends_supporting([](const Capabilities&) { return true; }),
            "; backends 'broken' and 'whole' can");
  EXPECT_EQ(backends_supporting([](const Capabilities&) { return false; }), "");
  EXPECT_EQ(found, 2);

  auto broken = new_comm("broken", at::kCPU, "x");
  auto whole = new_comm("whole", at::kCPU, "x");
  auto integers = at::zeros({2}, at::kInt);
  auto reals = at::zeros({2});
  EXPECT_EQ(refusal([&] { broken->all_reduce(integers, ReduceOp(RedOpType::SUM), false); }),
            "tensor has dtype int32, which backend 'broken' does not have; backend 'whole' can");
  EXPECT_EQ(refusal([&] { whole->all_reduce(reals, ReduceOp(RedOpType::AVG), false); }),
            "backend 'whole' has no reduction AVG; backend 'broken' can");
  EXPECT_EQ(refusal([&] { whole->new_window(); }),
            "new_window not implemented by backend 'whole'; backend 'broken' can");
  factory.set_discovery(nullptr);
}

}  // namespace
}  // namespace torch::comms
