#include <optional>
#include <utility>

#include "backends/gloo/flat_view.hpp"
#include "backends/gloo/message_work.hpp"
#include "backends/gloo/run.hpp"
#include "base/peer_error_text.hpp"

// Messages between two ranks. Their buffers are Gloo's when the call returns, so the order of calls
// is the order of messages.
namespace torch::comms {

using namespace gloo;

namespace {

// Nothing: the peer has not closed the communicator.
std::optional<CommError> left_peer(const Call& now, const P2POp& op,
                                   const common::PeerMonitor& others) {
  if (!others.departures().contains(op.peer)) return std::nullopt;
  const bool sends = op.type == P2POpType::SEND;
  return common::peer_closed_error(
      op.peer, sends ? base::no_more_receives_text(op.peer) : base::no_more_sends_text(op.peer),
      context(now));
}

}  // namespace

WorkPtr TorchCommGloo::post(const Call& now, const std::vector<P2POp>& ops) {
  std::vector<Message> messages;
  messages.reserve(ops.size());
  try {
    for (const auto& op : ops) {
      if (op.tag < 0)
        throw CommError(
            Errc::kInvalidArgument,
            "tag is " + std::to_string(op.tag) + ", allowed is 0 to " + std::to_string(kLargestTag),
            context(now));
      if (op.peer == kAnySource && op.type == P2POpType::RECV) {
        for (int peer = 0; peer < now.member->size; ++peer) group_->peers->require(now, peer);
        continue;
      }
      if (op.peer < 0 || op.peer >= now.member->size || op.peer == now.member->rank)
        throw CommError(Errc::kInvalidArgument,
                        "peer is " + std::to_string(op.peer) +
                            ", allowed are the other ranks below " +
                            std::to_string(now.member->size),
                        context(now));
      group_->peers->require(now, op.peer);
    }
    for (const auto& op : ops) {
      Tensors tensors{bytes(op.tensor)};
      auto& native = *group_->native;
      messages.push_back({op.type == P2POpType::SEND ? native.send(tensors, op.peer, op.tag)
                          : op.peer == kAnySource    ? native.recvAnysource(tensors, op.tag)
                                                     : native.recv(tensors, op.peer, op.tag),
                          op.peer, op.type == P2POpType::SEND});
      group_->tally->post(messages.back().sends, op.peer);
    }
  } catch (...) {
    // The first may be on their way already.
    for (auto& message : messages) group_->peers->keep(std::move(message.native));
    const bool posting = messages.size() < ops.size();
    auto error = translate(std::current_exception(), now, posting ? ops[messages.size()].peer : -1);
    // Its connection is gone because of that.
    if (posting && error.code() == Errc::kPeerFailed)
      if (const auto left = left_peer(now, ops[messages.size()], *group_->others)) error = *left;
    throw explained(error);
  }
  auto work = c10::make_intrusive<MessageWork>(now, std::move(messages), *group_);
  if (now.async_op) {
    group_->services->attendant.add(work);
    return work;
  }
  try {
    work->complete_here(*group_->services);
  } catch (const CommError& error) {
    if (now.op == OpName::batch_op_issue && error.code() == Errc::kTimeout) runAbortHooks();
    throw explained(error);
  }
  return completedWork();
}

WorkPtr TorchCommGloo::send(const at::Tensor& tensor, int dst, bool async_op,
                            const SendOptions& options) {
  return post(call(OpName::send, async_op, options), {{P2POpType::SEND, tensor, dst, options.tag}});
}

WorkPtr TorchCommGloo::recv(at::Tensor& tensor, int src, bool async_op,
                            const RecvOptions& options) {
  return post(call(OpName::recv, async_op, options), {{P2POpType::RECV, tensor, src, options.tag}});
}

WorkPtr TorchCommGloo::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                      const BatchP2POptions& options) {
  return post(call(OpName::batch_op_issue, async_op, options), ops);
}

}  // namespace torch::comms
