#include <optional>
#include <utility>

#include "backends/gloo/flat_view.hpp"
#include "backends/gloo/message_work.hpp"
#include "backends/gloo/run_collective.hpp"
#include "base/net/peer_error_text.hpp"

// Messages between two ranks. Their buffers are posted to Gloo when the call returns, so messages
// match in the order of the calls.
namespace torch::comms {

using namespace gloo;

namespace {

// Returns: the error if the peer has closed the communicator, otherwise nothing.
std::optional<CommError> find_closed_peer(const GlooCall& now, const P2POp& op,
                                          const common::PeerMonitor& peer_monitor) {
  if (!peer_monitor.peer_closes().contains(op.peer)) return std::nullopt;
  const bool sends = op.type == P2POpType::SEND;
  return common::peer_closed_error(
      op.peer, sends ? base::no_more_receives_text(op.peer) : base::no_more_sends_text(op.peer),
      context(now));
}

}  // namespace

WorkPtr TorchCommGloo::post_messages(const GlooCall& now, const std::vector<P2POp>& ops) {
  std::vector<GlooMessage> messages;
  messages.reserve(ops.size());
  try {
    for (const auto& op : ops) {
      if (op.tag < 0)
        throw CommError(
            Errc::kInvalidArgument,
            "tag is " + std::to_string(op.tag) + ", allowed is 0 to " + std::to_string(kLargestTag),
            context(now));
      if (op.peer == kAnySource && op.type == P2POpType::RECV) {
        for (int peer = 0; peer < now.comm->size; ++peer)
          group_->connections->require_peer(now, peer);
        continue;
      }
      if (op.peer < 0 || op.peer >= now.comm->size || op.peer == now.comm->rank)
        throw CommError(Errc::kInvalidArgument,
                        "peer is " + std::to_string(op.peer) + ", allowed is 0 to " +
                            std::to_string(now.comm->size - 1) + ", except this rank",
                        context(now));
      group_->connections->require_peer(now, op.peer);
    }
    for (const auto& op : ops) {
      Tensors tensors{byte_view(op.tensor)};
      auto& native = *group_->native;
      messages.push_back({op.type == P2POpType::SEND ? native.send(tensors, op.peer, op.tag)
                          : op.peer == kAnySource    ? native.recvAnysource(tensors, op.tag)
                                                     : native.recv(tensors, op.peer, op.tag),
                          op.peer, op.type == P2POpType::SEND});
      group_->message_counters->post(messages.back().is_send, op.peer);
    }
  } catch (...) {
    // The messages before the failed one may already be in flight.
    for (auto& message : messages)
      group_->connections->retain_unfinished(std::move(message.native));
    const bool failed_to_post = messages.size() < ops.size();
    auto error = translate_error(std::current_exception(), now,
                                 failed_to_post ? ops[messages.size()].peer : -1);
    // The connection may be closed because the peer has closed the communicator.
    if (failed_to_post && error.code() == Errc::kPeerFailed)
      if (const auto closed = find_closed_peer(now, ops[messages.size()], *group_->peer_monitor))
        error = *closed;
    throw explain_error(error);
  }
  auto work = c10::make_intrusive<MessageWork>(now, std::move(messages), *group_);
  if (now.async_op) {
    group_->message_waiter->add(work);
    return work;
  }
  try {
    work->complete_synchronously(*group_->message_waiter);
  } catch (const CommError& error) {
    if (now.op == OpName::batch_op_issue && error.code() == Errc::kTimeout) runAbortHooks();
    throw explain_error(error);
  }
  return completedWork();
}

WorkPtr TorchCommGloo::send(const at::Tensor& tensor, int dst, bool async_op,
                            const SendOptions& options) {
  return post_messages(begin_call(OpName::send, async_op, options),
                       {{P2POpType::SEND, tensor, dst, options.tag}});
}

WorkPtr TorchCommGloo::recv(at::Tensor& tensor, int src, bool async_op,
                            const RecvOptions& options) {
  return post_messages(begin_call(OpName::recv, async_op, options),
                       {{P2POpType::RECV, tensor, src, options.tag}});
}

WorkPtr TorchCommGloo::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                      const BatchP2POptions& options) {
  return post_messages(begin_call(OpName::batch_op_issue, async_op, options), ops);
}

}  // namespace torch::comms
