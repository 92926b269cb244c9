#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torchcomms/backend_wrapper.hpp>
#include <torchcomms/base/error.hpp>

#include "core/manual_backend.hpp"

namespace torch::comms {

// A work as of a device, whose poll_once() orders and whose end is the test's.
class DeviceWork final : public TorchWork {
 public:
  using TorchWork::setStatus;
  void wait() override {
    ++waits;
    rethrowIfFailed();
  }
  void hostSynchronize() override { ++synchronized; }
  bool waitBlocksHost() const noexcept override { return blocks; }

  int waits = 0, synchronized = 0;
  bool blocks = false;
};
using DeviceWorkPtr = c10::intrusive_ptr<DeviceWork>;

// Rank 0 of 2. Barriers and batches stay open until the test ends them.
class BackendOfWorks final : public ManualBackend {
 public:
  BackendOfWorks() : ManualBackend("works") {}

  int getSize() const override { return 2; }

  std::vector<DeviceWorkPtr> barriers, batches;
  int messages = 0;  // outside of batches
  size_t batched = 0;

  WorkPtr barrier(bool, const BarrierOptions&) override {
    barriers.push_back(c10::make_intrusive<DeviceWork>());
    return barriers.back();
  }
  WorkPtr send(const at::Tensor&, int, bool, const SendOptions&) override {
    ++messages;
    return completedWork();
  }
  WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool, const BatchP2POptions&) override {
    batched += ops.size();
    batches.push_back(c10::make_intrusive<DeviceWork>());
    return batches.back();
  }
};

// A group whose backend that is.
struct Group {
  std::shared_ptr<BackendOfWorks> backend = std::make_shared<BackendOfWorks>();
  c10::intrusive_ptr<BackendWrapper> calls =
      c10::make_intrusive<BackendWrapper>(TorchComm::wrap(backend, "works"));
  std::vector<at::Tensor> tensors{at::ones({3})};

  c10::intrusive_ptr<c10d::Work> send() { return calls->send(tensors, 1, 0); }
  c10::intrusive_ptr<c10d::Work> recv() { return calls->recv(tensors, 1, 0); }
};

// "" where it throws none.
template <class Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

}  // namespace torch::comms
