#pragma once

#include <memory>
#include <vector>

#include <torchcomms/options.hpp>
#include <torchcomms/work.hpp>

namespace torch::comms {

class TorchComm;

// Sends and receives that go out as one group, so that mixed orders cannot deadlock. Several to one
// peer match in order. Keeps its communicator alive. Issuing leaves the list: issuing again repeats
// it.
class TC_API BatchSendRecv {
 public:
  using P2POp = torch::comms::P2POp;

  explicit BatchSendRecv(std::shared_ptr<TorchComm> comm);

  // Only append; nothing is checked or sent before issue().
  void send(const at::Tensor& tensor, int dst);
  void recv(const at::Tensor& tensor, int src);

  // Throws CommError(kInvalidArgument): empty batch, peer out of range, unusable tensor.
  WorkPtr issue(bool async_op, const BatchP2POptions& options = {});

  const std::shared_ptr<TorchComm>& comm() const { return comm_; }

  std::vector<P2POp> ops;

 private:
  std::shared_ptr<TorchComm> comm_;
};

}  // namespace torch::comms
