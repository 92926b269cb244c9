#include <string>
#include <utility>

#include "backends/ctran/call_context.hpp"
#include "backends/ctran/ctran_work.hpp"
#include "core/work/interruptible_call.hpp"

// Messages of TorchCommCtran between two ranks, each of one tensor.
namespace torch::comms {

using ctran::EngineCall;
using ctran::OperandBuffers;
using schedule::Blocks;
using Kind = schedule::Operation;

namespace {

// One message, and its buffers.
struct CtranMessage {
  CtranMessage(const ctran::CallInfo& now, const P2POp& op, int size) {
    const bool sends = op.type == P2POpType::SEND;
    if (sends)
      operands.read(op.tensor);
    else
      operands.write(op.tensor);
    call = {.name = now.op,
            .operation = sends ? Kind::kSend : Kind::kReceive,
            .dtype = static_cast<uint8_t>(op.tensor.scalar_type()),
            .element_bytes = static_cast<uint32_t>(op.tensor.element_size()),
            .root = op.peer,
            .tag = op.tag,
            .blocks = Blocks::even(op.tensor.numel(), size),
            .timeout = now.timeout};
  }
  OperandBuffers operands;
  EngineCall call;
};

}  // namespace

WorkPtr TorchCommCtran::post_messages(const ctran::CallInfo& now, bool async_op,
                                      const std::vector<P2POp>& ops) {
  return with_call_context(now, [&] {
    c10::SmallVector<CtranMessage, 2> messages;
    c10::SmallVector<EngineCall, 2> calls;
    for (const auto& op : ops) {
      if (op.tag < 0)
        throw CommError(Errc::kInvalidArgument, "tag is " + std::to_string(op.tag) +
                                                    ", allowed is 0 to " +
                                                    std::to_string(kLargestTag));
      messages.emplace_back(now, op, size_);
    }
    for (auto& message : messages) {
      message.call.input = message.operands.input();
      message.call.output = message.operands.output();
      calls.push_back(message.call);
    }
    const auto keep = [&] {
      std::vector<c10::Storage> all;
      for (const auto& message : messages)
        for (auto& storage : message.operands.storages()) all.push_back(std::move(storage));
      return all;
    };
    auto& group = *session_->group;
    const std::span<const EngineCall> batch{calls.data(), calls.size()};
    if (async_op)
      return WorkPtr(ctran::CtranWork::start(
          now, *session_, keep(),
          [&](ctran::CompletionListener* listener) { return group.start(batch, listener); }));
    try {
      group.run(batch);
    } catch (const Interrupted& e) {
      session_->retain_storage(keep());
      e.rethrow_cause();
    } catch (const CommError& e) {
      throw handle_failure(e);
    }
    return completedWork();
  });
}

WorkPtr TorchCommCtran::send(const at::Tensor& tensor, int dst, bool async_op,
                             const SendOptions& options) {
  return post_messages(begin_call(OpName::send, options), async_op,
                       {{P2POpType::SEND, tensor, dst, options.tag}});
}

WorkPtr TorchCommCtran::recv(at::Tensor& tensor, int src, bool async_op,
                             const RecvOptions& options) {
  return post_messages(begin_call(OpName::recv, options), async_op,
                       {{P2POpType::RECV, tensor, src, options.tag}});
}

WorkPtr TorchCommCtran::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                       const BatchP2POptions& options) {
  return post_messages(begin_call(OpName::batch_op_issue, options), async_op, ops);
}

}  // namespace torch::comms
