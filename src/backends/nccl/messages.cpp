#include <algorithm>
#include <utility>

#include "backends/nccl/run.hpp"
#include "core/rendezvous.hpp"
#include "core/store_adapter.hpp"

// Messages between two ranks.
namespace torch::comms {

using nccl::Bytes;
using nccl::Launch;

WorkPtr TorchCommVendor::message(const nccl::Call& now, const OperationOptions& options,
                                 const P2POp& op) {
  auto& lane = lane_to(op.peer, now);
  // A communicator of a pair has two ranks.
  const int peer = &lane == lane_.get() ? op.peer : 1 - lane.communicator().rank();
  return launch(lane, now, options, keep(now, {{&op.tensor}, {}}), [&](const Launch& go) {
    const Bytes bytes(op.tensor);
    return op.type == P2POpType::SEND ? go.send(bytes, peer) : go.receive(bytes, peer);
  });
}

WorkPtr TorchCommVendor::send(const at::Tensor& tensor, int dst, bool async_op,
                              const SendOptions& options) {
  return message(call(OpName::send, async_op, options), options, {P2POpType::SEND, tensor, dst});
}

WorkPtr TorchCommVendor::recv(at::Tensor& tensor, int src, bool async_op,
                              const RecvOptions& options) {
  return message(call(OpName::recv, async_op, options), options, {P2POpType::RECV, tensor, src});
}

WorkPtr TorchCommVendor::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                        const BatchP2POptions& options) {
  const auto now = call(OpName::batch_op_issue, async_op, options);
  Tensors tensors;
  for (const auto& op : ops) tensors.push_back(op.tensor);
  return run(now, options, {{}, {&tensors}}, [&](const Launch& go) {
    auto results = go.results();
    for (const auto& op : ops) {
      const Bytes bytes(op.tensor);
      results << (op.type == P2POpType::SEND ? go.send(bytes, op.peer)
                                             : go.receive(bytes, op.peer));
    }
    return results;
  });
}

nccl::Lane& TorchCommVendor::lane_to(int peer, const nccl::Call& now) {
  if (!has_pairs() || peer == rank_) return *lane_;
  if (const auto found = pairs_.find(peer); found != pairs_.end()) return *found->second;
  if (!pair_store_)
    throw CommError(Errc::kInvalidArgument,
                    "backend '" + backend_ +
                        "' connects each pair of ranks at its first message, and needs the "
                        "communicator to be made with store= for that",
                    now.context(peer));
  try {
    return add_pair(peer, connect_pair(peer, now));
  } catch (const Interrupted& e) {
    interrupted(e, now, *lane_);
  } catch (const CommError& e) {
    failed(e, now, *lane_);  // the ranks are at different places
  }
}

std::shared_ptr<nccl::Lane> TorchCommVendor::connect_pair(int peer, const nccl::Call& now) {
  auto wait = nccl::launch_wait(now);
  wait.timeout_text = [&] {
    const auto peer_text = "not connected with rank " + std::to_string(peer);
    return nccl::limit_text(now, (peer_text + " for the first message between the two").c_str());
  };
  wait.context = [&] { return now.context(peer); };
  const auto look = [&] {
    lane_->end_if_told([&] { return now.context(); });
    raise_failure(*lane_);
  };
  wait.interrupt_check = [&] {
    check_interrupt();
    look();
  };
  const bool leads = rank_ < peer;
  const auto key =
      "pair/" + std::to_string(std::min(rank_, peer)) + "/" + std::to_string(std::max(rank_, peer));
  StoreKeyValue store(pair_store_, bootstrap::Deadline(now.limit), now.context(peer));
  std::string id;
  if (leads) {
    store.set(key, id = nccl::Communicator::make_id(*library_, now.context(peer)));
  } else {
    try {
      id = store.get(key, now.limit, look);
    } catch (const CommError& e) {
      if (e.code() != Errc::kTimeout || nccl::Clock::now() < wait.deadline) throw;
      throw CommError(Errc::kTimeout, wait.timeout_text(), wait.context());
    }
  }
  const nccl::Device::DeviceCallGuard as_before(lane_->device());
  auto device = nccl::Device::open(*library_, device_, rank_, wishes_->high_priority_stream,
                                   wishes_->most_events);
  auto pair = nccl::Communicator::connect(library_, 2, leads ? 0 : 1, id,
                                          nccl::config_of(options_.hints, name_),
                                          nccl::Device::enter(device), wait);
  return make_lane(std::move(pair), std::move(device));
}

}  // namespace torch::comms
