#include <torchcomms/batch.hpp>

#include <gtest/gtest.h>

#include "core/manual_backend.hpp"

namespace torch::comms {
namespace {

class BatchBackend : public ManualBackend {
 public:
  using ManualBackend::ManualBackend;
  size_t issued = 0;

  Capabilities capabilities() const override {
    auto can = Capabilities::all();
    can.self_messages = true;
    return can;
  }

  WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool, const BatchP2POptions&) override {
    issued = ops.size();
    return completedWork();
  }
};

TEST(Batch, WhatAHookAddsIsOfTheNextIssue) {
  const auto backend = std::make_shared<BatchBackend>("batch");
  const auto comm = TorchComm::wrap(backend, "manual");
  auto batch = comm->batch_op_create();
  const auto tensor = at::ones({2});
  batch.send(tensor, 0);
  comm->registerPreHook([&](size_t, const PreHookArgs&) { batch.send(tensor, 0); });
  batch.issue(false);
  EXPECT_EQ(backend->issued, 1u);
  EXPECT_EQ(batch.ops.size(), 2u);
}

}  // namespace
}  // namespace torch::comms
