#include "backends/nccl/api/rcclx_backend.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/sum.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "backends/nccl/streams/launch.hpp"
#include "core/comm/operand_checks.hpp"
#include "core/comm/validate.hpp"
#include "core/options/dtype_name.hpp"
#include "core/options/hint_table.hpp"
#include "gpu/cpu_runtime.hpp"

namespace torch::comms {

using nccl::NcclLaunch;
using nccl::TensorBytes;
using nccl::relay::RelayShard;
using nccl::relay::RelayTransfer;

namespace {

bool is_in(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

TensorBytes cut_out(const at::Tensor& flat, int64_t begin, int64_t count) {
  TensorBytes bytes(flat);
  bytes.data += static_cast<size_t>(begin) * flat.element_size();
  bytes.size = static_cast<size_t>(count) * flat.element_size();
  return bytes;
}

// True if torch can reduce this dtype on every device.
bool can_reduce(const ReduceOp& op, at::ScalarType dtype) {
  if (!nccl::is_reducible(dtype) || dtype == at::kUInt16 || dtype == at::kUInt32 ||
      dtype == at::kUInt64)
    return false;
  switch (op.type()) {
    case RedOpType::AVG:
      return dtype != at::kBool;
    case RedOpType::SUM:
    case RedOpType::PRODUCT:
    case RedOpType::MIN:
    case RedOpType::MAX:
      return true;
    default:
      return false;
  }
}

// Reduces the rows of `parts` into one row. Sums of 16-bit floats are rounded once.
void reduce_rows(at::Tensor into, const at::Tensor& parts, RedOpType op) {
  const auto dtype = parts.scalar_type();
  if (dtype == at::kBool && op == RedOpType::SUM) op = RedOpType::MAX;
  if (dtype == at::kBool && op == RedOpType::PRODUCT) op = RedOpType::MIN;
  switch (op) {
    case RedOpType::PRODUCT:
      at::prod_out(into, parts, 0, /*keepdim=*/false, dtype);
      break;
    case RedOpType::MIN:
      at::amin_out(into, parts, {0});
      break;
    case RedOpType::MAX:
      at::amax_out(into, parts, {0});
      break;
    case RedOpType::AVG:
      if (parts.is_floating_point()) {
        at::mean_out(into, parts, {0});
      } else {
        at::sum_out(into, parts, {0}, /*keepdim=*/false, dtype);
        into.div_(parts.size(0), "trunc");
      }
      break;
    default:
      at::sum_out(into, parts, {0}, /*keepdim=*/false, dtype);
  }
}

// The buffers of one rank for one piece.
struct RelayBuffers {
  RelayTransfer transfer;
  RelayShard own;            // the shard that this rank carries
  at::Tensor input, output;  // flat; undefined if this rank is no source, or no destination
  at::Tensor parts;          // of the own shard: a row from each source; undefined if not needed
  at::Tensor outgoing;       // what this relay rank sends to the destinations

  // True if `rank` receives the piece from relay ranks.
  bool travels_to(int rank) const {
    return transfer.destination(rank) != nullptr &&
           (transfer.reduces() || transfer.sources.front() != rank);
  }
};
using RelayBufferList = std::vector<RelayBuffers>;

RelayBuffers make_relay_buffers(RelayTransfer transfer, const at::Tensor& input,
                                const at::Tensor& output, int rank, int size) {
  RelayBuffers buffers{std::move(transfer), {}, {}, {}, {}, {}};
  if (buffers.transfer.has_source(rank)) buffers.input = input.detach().view({-1});
  if (buffers.transfer.destination(rank) != nullptr) buffers.output = output.detach().view({-1});
  if (buffers.transfer.is_local()) return buffers;
  buffers.own = nccl::relay::shard_of(buffers.transfer, rank, size);
  if (buffers.own.count == 0) return buffers;
  const bool is_source = buffers.transfer.has_source(rank);
  const auto rows = static_cast<int64_t>(buffers.transfer.sources.size());
  if (buffers.transfer.reduces() || !is_source)
    buffers.parts = at::empty({rows, buffers.own.count}, input.options());
  if (buffers.transfer.reduces())
    buffers.outgoing = at::empty({buffers.own.count}, input.options());
  else
    buffers.outgoing =
        is_source ? buffers.input.narrow(0, buffers.transfer.input_offset + buffers.own.begin,
                                         buffers.own.count)
                  : buffers.parts[0];
  return buffers;
}

// Sends shards to their relay ranks.
nccl::FirstFailedResult send_to_relays(const NcclLaunch& launch, const RelayBufferList& all,
                                       int rank, int size) {
  auto results = launch.results();
  for (const auto& buffers : all) {
    const auto& transfer = buffers.transfer;
    if (transfer.is_local()) continue;
    for (int relay_rank = 0; transfer.has_source(rank) && relay_rank < size; ++relay_rank)
      if (const auto shard = nccl::relay::shard_of(transfer, relay_rank, size);
          relay_rank != rank && shard.count > 0)
        results << launch.send(
            cut_out(buffers.input, transfer.input_offset + shard.begin, shard.count), relay_rank);
    for (size_t row = 0; buffers.own.count > 0 && row < transfer.sources.size(); ++row)
      if (transfer.sources[row] != rank)
        results << launch.receive(TensorBytes(buffers.parts[static_cast<int64_t>(row)]),
                                  transfer.sources[row]);
  }
  return results;
}

// Reduces the own shards, and copies the data that stays on this rank.
void combine(const RelayBufferList& all, int rank, RedOpType op) {
  const PlainDispatchGuard plain;
  for (const auto& buffers : all) {
    const auto& transfer = buffers.transfer;
    if (transfer.reduces() && buffers.own.count > 0) {
      for (size_t row = 0; row < transfer.sources.size(); ++row)
        if (transfer.sources[row] == rank)
          buffers.parts[static_cast<int64_t>(row)].copy_(buffers.input.narrow(
              0, transfer.input_offset + buffers.own.begin, buffers.own.count));
      reduce_rows(buffers.outgoing, buffers.parts, op);
    }
    const auto* const destination = transfer.destination(rank);
    if (destination == nullptr) continue;
    if (!buffers.travels_to(rank))
      buffers.output.narrow(0, destination->output_offset, transfer.count)
          .copy_(buffers.input.narrow(0, transfer.input_offset, transfer.count));
    else if (buffers.own.count > 0)
      buffers.output.narrow(0, destination->output_offset + buffers.own.begin, buffers.own.count)
          .copy_(buffers.outgoing);
  }
}

// Sends shards to their destinations.
nccl::FirstFailedResult send_from_relays(const NcclLaunch& launch, const RelayBufferList& all,
                                         int rank, int size) {
  auto results = launch.results();
  for (const auto& buffers : all) {
    const auto& transfer = buffers.transfer;
    if (transfer.is_local()) continue;
    for (const auto& to : transfer.destinations)
      if (to.rank != rank && buffers.own.count > 0 && buffers.travels_to(to.rank))
        results << launch.send(TensorBytes(buffers.outgoing), to.rank);
    if (!buffers.travels_to(rank)) continue;
    const auto begin = transfer.destination(rank)->output_offset;
    for (int relay_rank = 0; relay_rank < size; ++relay_rank)
      if (const auto shard = nccl::relay::shard_of(transfer, relay_rank, size);
          relay_rank != rank && shard.count > 0)
        results << launch.receive(cut_out(buffers.output, begin + shard.begin, shard.count),
                                  relay_rank);
  }
  return results;
}

}  // namespace

void TorchCommRCCLX::check(const Kind& kind, const ReduceOp* op, const Tensors& input,
                           const Tensors& output, const Groups& groups, const Counts& counts,
                           const Context& context) const {
  const auto require = [&](bool holds, const auto& why) {
    if (!holds) throw CommError(Errc::kInvalidArgument, why(), context);
  };
  const auto require_one_per_group = [&](const char* name, size_t count) {
    require(count == groups.size(), [&] {
      return std::string(name) + " has " + std::to_string(count) +
             " entries, expected one for each of the " + std::to_string(groups.size()) +
             " groups of all_active_ranks";
    });
  };
  require_one_per_group(kind.input_name, input.size());
  require_one_per_group(kind.output_name, output.size());
  require_one_per_group(kind.counts_name, counts.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& ranks = groups[g];
    const auto number = std::to_string(g);
    require(!ranks.empty(), [&] { return "all_active_ranks[" + number + "] is empty"; });
    for (size_t i = 0; i < ranks.size(); ++i) {
      require(ranks[i] >= 0 && ranks[i] < getSize(), [&] {
        return "all_active_ranks[" + number + "] has rank " + std::to_string(ranks[i]) +
               ", allowed is 0 to " + std::to_string(getSize() - 1);
      });
      require(std::find(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(i), ranks[i]) ==
                  ranks.begin() + static_cast<std::ptrdiff_t>(i),
              [&] {
                return "all_active_ranks[" + number + "] has rank " + std::to_string(ranks[i]) +
                       " twice";
              });
    }
    require(counts[g] >= 0, [&] {
      return std::string(kind.counts_name) + "[" + number + "] is " + std::to_string(counts[g]) +
             ", allowed is 0 or more";
    });
    const auto check_tensor = [&](const char* name, const at::Tensor& tensor, Extent extent) {
      const auto what = std::string(name) + "[" + number + "]";
      require(tensor.defined(), [&] { return what + " is an undefined tensor"; });
      require(tensor.device() == getDevice(), [&] {
        return what + " is on " + tensor.device().str() + ", the communicator on " +
               getDevice().str();
      });
      if (!is_in(ranks, getRank())) return;
      require(tensor.layout() == at::kStrided && tensor.is_contiguous(),
              [&] { return format_not_contiguous(what); });
      const auto multiplier = extent == Extent::kOne ? 1 : static_cast<int64_t>(ranks.size());
      require(tensor.numel() % multiplier == 0 && tensor.numel() / multiplier == counts[g], [&] {
        return what + " has " + std::to_string(tensor.numel()) + " elements, expected " +
               std::to_string(multiplier) + " times " + std::to_string(counts[g]);
      });
    };
    check_tensor(kind.input_name, input[g], kind.input);
    check_tensor(kind.output_name, output[g], kind.output);
    require(output[g].scalar_type() == input[g].scalar_type(), [&] {
      return std::string(kind.output_name) + "[" + number + "] has dtype " +
             dtype_name(output[g].scalar_type()) + ", " + kind.input_name + "[" + number +
             "] has " + dtype_name(input[g].scalar_type()) + "; they must be the same";
    });
    if (op != nullptr && !can_reduce(*op, input[g].scalar_type()))
      throw CommError(
          Errc::kUnsupported,
          std::string(toString(op->type())) + " of dtype " + dtype_name(input[g].scalar_type()) +
              " is not supported; sharded relays reduce with SUM, PRODUCT, MIN, MAX and "
              "AVG: float16, bfloat16, float32, float64, int8, uint8, int32, int64 "
              "and, except for AVG, bool",
          context);
  }
}

c10::Stream TorchCommRCCLX::async_stream() {
  const auto& device = launch_queue()->device();
  const nccl::NcclDevice::CurrentDeviceGuard current(device);
  if (!stream_)
    stream_ = c10::impl::VirtualGuardImpl(getDevice().type())
                  .getStreamFromGlobalPool(getDevice(), /*isHighPriority=*/false);
  const auto event = device.events().acquire();
  device.runtime().record(event.get(), device.current_stream());
  device.runtime().wait(static_cast<gpu::NativeStream>(stream_->native_handle()), event.get());
  return *stream_;
}

WorkPtr TorchCommRCCLX::relay(const Kind& kind, const ReduceOp* op, const Tensors& input,
                              const Tensors& output, const Groups& groups, const Counts& counts,
                              bool async_op) {
  const auto now = begin_call(kind.op, async_op, {}, kind.name);
  check(kind, op, input, output, groups, counts, now.context());
  const auto& device = launch_queue()->device();
  OperationOptions options;
  std::optional<c10::StreamGuard> stream_guard;
  if (!device.torch_device().is_cpu() && async_op) {
    // Torch's operators run on the current stream. A capture must not fork.
    if (device.runtime().capture_of(device.current_stream()) == 0)
      stream_guard.emplace(async_stream());
    options.hints[hint::kUseCurrentStream.name] = "true";
  }
  const auto all = std::make_shared<RelayBufferList>();
  Tensors memory;
  for (size_t g = 0; g < groups.size(); ++g) {
    // In place is safe for all_reduce: a relay rank sends back only data that was read before.
    const bool in_place =
        kind.op == OpName::all_reduce && TensorBytes(input[g]).data == TensorBytes(output[g]).data;
    const bool is_active = is_in(groups[g], getRank());
    const auto source =
        is_active && !in_place && nccl::overlap(input[g], output[g]) ? input[g].clone() : input[g];
    for (auto& transfer : kind.plan(groups[g], counts[g])) {
      all->push_back(
          make_relay_buffers(std::move(transfer), source, output[g], getRank(), getSize()));
      for (const auto& tensor : {all->back().parts, all->back().outgoing})
        if (tensor.defined()) memory.push_back(tensor);
    }
    memory.push_back(source);
    memory.push_back(output[g]);
  }
  const auto step = [&](const auto& body) {
    return launch(*launch_queue(), now, options, retain_storages(now, {{}, {&memory}}), body);
  };
  step(
      [&](const NcclLaunch& launch) { return send_to_relays(launch, *all, getRank(), getSize()); });
  const auto type = op != nullptr ? op->type() : RedOpType(RedOpType::SUM);
  step([&](const NcclLaunch& launch) {
    if (device.torch_device().is_cpu())
      gpu::cpu_launch(launch.stream, [all, rank = getRank(), type] { combine(*all, rank, type); });
    else
      combine(*all, getRank(), type);
    return nccl::abi::Result(nccl::abi::kSuccess);
  });
  auto work = step([&](const NcclLaunch& launch) {
    return send_from_relays(launch, *all, getRank(), getSize());
  });
  return async_op ? work : nullptr;
}

WorkPtr TorchCommRCCLX::sharded_relay_multi_group_all_reduce(const Tensors& tensors,
                                                             const ReduceOp& op,
                                                             const Groups& groups,
                                                             const Counts& counts, bool async_op,
                                                             const std::optional<Tensors>& output) {
  static constexpr Kind kKind{OpName::all_reduce,
                              "sharded_relay_multi_group_all_reduce",
                              nccl::relay::all_reduce,
                              Extent::kOne,
                              Extent::kOne,
                              "tensors",
                              "output_tensors",
                              "per_group_counts"};
  return relay(kKind, &op, tensors, output.value_or(tensors), groups, counts, async_op);
}

WorkPtr TorchCommRCCLX::sharded_relay_multi_group_reduce_scatter(
    const Tensors& input, const Tensors& output, const ReduceOp& op, const Groups& groups,
    const Counts& counts, bool async_op) {
  static constexpr Kind kKind{OpName::reduce_scatter_single,
                              "sharded_relay_multi_group_reduce_scatter",
                              nccl::relay::reduce_scatter,
                              Extent::kOnePerRank,
                              Extent::kOne,
                              "input_tensors",
                              "output_tensors",
                              "per_group_recv_counts"};
  return relay(kKind, &op, input, output, groups, counts, async_op);
}

WorkPtr TorchCommRCCLX::sharded_relay_multi_group_all_to_all(const Tensors& input,
                                                             const Tensors& output,
                                                             const Groups& groups,
                                                             const Counts& counts, bool async_op) {
  static constexpr Kind kKind{OpName::all_to_all_single, "sharded_relay_multi_group_all_to_all",
                              nccl::relay::all_to_all,   Extent::kOnePerRank,
                              Extent::kOnePerRank,       "input_tensors",
                              "output_tensors",          "per_group_segment_counts"};
  return relay(kKind, nullptr, input, output, groups, counts, async_op);
}

WorkPtr TorchCommRCCLX::sharded_relay_multi_group_all_gather(const Tensors& input,
                                                             const Tensors& output,
                                                             const Groups& groups,
                                                             const Counts& counts, bool async_op) {
  static constexpr Kind kKind{OpName::all_gather_single, "sharded_relay_multi_group_all_gather",
                              nccl::relay::all_gather,   Extent::kOne,
                              Extent::kOnePerRank,       "input_tensors",
                              "output_tensors",          "per_group_send_counts"};
  return relay(kKind, nullptr, input, output, groups, counts, async_op);
}

}  // namespace torch::comms
