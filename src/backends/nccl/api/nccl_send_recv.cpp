#include <algorithm>
#include <utility>

#include "backends/nccl/streams/launch.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/rendezvous/store_adapter.hpp"

// Point-to-point operations of NcclApiBackend.
namespace torch::comms {

using nccl::NcclLaunch;
using nccl::TensorBytes;

WorkPtr NcclApiBackend::send_or_recv(const nccl::NcclCall& now, const OperationOptions& options,
                                     const P2POp& op) {
  auto& queue = queue_to(op.peer, now);
  // A pair communicator has the ranks 0 and 1.
  const int peer = &queue == launch_queue_.get() ? op.peer : 1 - queue.communicator().rank();
  return launch(
      queue, now, options, retain_storages(now, {{&op.tensor}, {}}), [&](const NcclLaunch& launch) {
        const TensorBytes bytes(op.tensor);
        return op.type == P2POpType::SEND ? launch.send(bytes, peer) : launch.receive(bytes, peer);
      });
}

WorkPtr NcclApiBackend::send(const at::Tensor& tensor, int dst, bool async_op,
                             const SendOptions& options) {
  return send_or_recv(begin_call(OpName::send, async_op, options), options,
                      {P2POpType::SEND, tensor, dst});
}

WorkPtr NcclApiBackend::recv(at::Tensor& tensor, int src, bool async_op,
                             const RecvOptions& options) {
  return send_or_recv(begin_call(OpName::recv, async_op, options), options,
                      {P2POpType::RECV, tensor, src});
}

WorkPtr NcclApiBackend::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                       const BatchP2POptions& options) {
  const auto now = begin_call(OpName::batch_op_issue, async_op, options);
  Tensors tensors;
  for (const auto& op : ops) tensors.push_back(op.tensor);
  return run(now, options, {{}, {&tensors}}, [&](const NcclLaunch& launch) {
    auto results = launch.results();
    for (const auto& op : ops) {
      const TensorBytes bytes(op.tensor);
      results << (op.type == P2POpType::SEND ? launch.send(bytes, op.peer)
                                             : launch.receive(bytes, op.peer));
    }
    return results;
  });
}

nccl::LaunchQueue& NcclApiBackend::queue_to(int peer, const nccl::NcclCall& now) {
  if (!has_pair_communicators() || peer == rank_) return *launch_queue_;
  if (const auto found = peer_queues_.find(peer); found != peer_queues_.end())
    return *found->second;
  if (!pair_store_)
    throw CommError(Errc::kInvalidArgument,
                    "backend '" + backend_ +
                        "' connects each pair of ranks at its first message, for which the "
                        "communicator must be created with store=",
                    now.context(peer));
  try {
    return add_pair(peer, connect_pair(peer, now));
  } catch (const Interrupted& e) {
    abort_on_interrupt(e, now, *launch_queue_);
  } catch (const CommError& e) {
    throw_failure(e, now, *launch_queue_);  // the ranks may be at different operations
  }
}

std::shared_ptr<nccl::LaunchQueue> NcclApiBackend::connect_pair(int peer,
                                                                const nccl::NcclCall& now) {
  auto wait = nccl::launch_wait(now);
  wait.timeout_text = [&] {
    const auto peer_text = "not connected to rank " + std::to_string(peer);
    return nccl::format_timeout_error(
        now, (peer_text + ", for the first message of this pair of ranks").c_str());
  };
  wait.context = [&] { return now.context(peer); };
  const auto check_peers = [&] {
    launch_queue_->abort_if_peer_failed([&] { return now.context(); });
    raise_failure(*launch_queue_);
  };
  wait.interrupt_check = [&] {
    check_interrupt();
    check_peers();
  };
  const bool is_leader = rank_ < peer;
  const auto key =
      "pair/" + std::to_string(std::min(rank_, peer)) + "/" + std::to_string(std::max(rank_, peer));
  StoreKeyValue store(pair_store_, bootstrap::Deadline(now.timeout), now.context(peer));
  std::string id;
  if (is_leader) {
    store.set(key, id = nccl::Communicator::make_id(*library_, now.context(peer)));
  } else {
    try {
      id = store.get(key, now.timeout, check_peers);
    } catch (const CommError& e) {
      if (e.code() != Errc::kTimeout || nccl::Clock::now() < wait.deadline) throw;
      throw CommError(Errc::kTimeout, wait.timeout_text(), wait.context());
    }
  }
  const nccl::NcclDevice::DeviceCallGuard device_guard(launch_queue_->device());
  auto device = nccl::NcclDevice::open(
      *library_, device_, rank_, nccl_options_->high_priority_stream, nccl_options_->max_events);
  auto pair = nccl::Communicator::connect(library_, 2, is_leader ? 0 : 1, id,
                                          nccl::make_config(options_.hints, name_),
                                          nccl::NcclDevice::make_current_function(device), wait);
  return make_launch_queue(std::move(pair), std::move(device));
}

}  // namespace torch::comms
