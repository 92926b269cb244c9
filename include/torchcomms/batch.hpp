#pragma once

#include <memory>
#include <vector>

#include <torchcomms/options.hpp>
#include <torchcomms/work.hpp>

namespace torch::comms {

class TorchComm;

// Collects sends and receives that are issued as one group, so that their order cannot cause a
// deadlock. Several messages to one peer match in order. issue() keeps the list, so a second
// issue() repeats it.
// Lifetime: keeps its communicator alive.
class TC_API BatchSendRecv {
 public:
  using P2POp = torch::comms::P2POp;

  explicit BatchSendRecv(std::shared_ptr<TorchComm> comm);

  // These methods only append; checks and transfers begin with issue().
  void send(const at::Tensor& tensor, int dst);
  void recv(const at::Tensor& tensor, int src);

  // Issues all messages of the batch.
  // Throws: CommError(kInvalidArgument) for an empty batch, a peer out of range, or an unusable
  // tensor.
  WorkPtr issue(bool async_op, const BatchP2POptions& options = {});

  const std::shared_ptr<TorchComm>& comm() const { return comm_; }

  std::vector<P2POp> ops;

 private:
  std::shared_ptr<TorchComm> comm_;
};

}  // namespace torch::comms
