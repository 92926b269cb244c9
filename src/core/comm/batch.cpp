#include <torchcomms/batch.hpp>
#include <torchcomms/comm.hpp>

namespace torch::comms {

BatchSendRecv::BatchSendRecv(std::shared_ptr<TorchComm> comm) : comm_(std::move(comm)) {}

void BatchSendRecv::send(const at::Tensor& tensor, int dst) {
  ops.push_back({P2POpType::SEND, tensor, dst});
}

void BatchSendRecv::recv(const at::Tensor& tensor, int src) {
  ops.push_back({P2POpType::RECV, tensor, src});
}

WorkPtr BatchSendRecv::issue(bool async_op, const BatchP2POptions& options) {
  const auto issued = ops;  // a copy, because hooks may append to the list
  return comm_->batch_op_issue(issued, async_op, options);
}

}  // namespace torch::comms
