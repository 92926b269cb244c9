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
  at::Tensor carried;        // what this carrier sends to the destinations

  // True if `rank` receives the piece from carriers.
  bool travels_to(int rank) const {
    return transfer.destination(rank) != nullptr &&
           (transfer.reduces() || transfer.sources.front() != rank);
  }
};
using RelayBufferList = std::vector<RelayBuffers>;

RelayBuffers make_relay_buffers(RelayTransfer piece, const at::Tensor& input,
                                const at::Tensor& output, int rank, int size) {
  RelayBuffers load{std::move(piece), {}, {}, {}, {}, {}};
  if (load.transfer.has_source(rank)) load.input = input.detach().view({-1});
  if (load.transfer.destination(rank) != nullptr) load.output = output.detach().view({-1});
  if (load.transfer.is_local()) return load;
  load.own = nccl::relay::shard_of(load.transfer, rank, size);
  if (load.own.count == 0) return load;
  const bool gives = load.transfer.has_source(rank);
  const auto rows = static_cast<int64_t>(load.transfer.sources.size());
  if (load.transfer.reduces() || !gives)
    load.parts = at::empty({rows, load.own.count}, input.options());
  if (load.transfer.reduces())
    load.carried = at::empty({load.own.count}, input.options());
  else
    load.carried =
        gives ? load.input.narrow(0, load.transfer.input_offset + load.own.begin, load.own.count)
              : load.parts[0];
  return load;
}

// Sends shards to their carriers.
nccl::FirstFailedResult to_carriers(const NcclLaunch& go, const RelayBufferList& all, int rank,
                                    int size) {
  auto results = go.results();
  for (const auto& load : all) {
    const auto& piece = load.transfer;
    if (piece.is_local()) continue;
    for (int carrier = 0; piece.has_source(rank) && carrier < size; ++carrier)
      if (const auto shard = nccl::relay::shard_of(piece, carrier, size);
          carrier != rank && shard.count > 0)
        results << go.send(cut_out(load.input, piece.input_offset + shard.begin, shard.count),
                           carrier);
    for (size_t row = 0; load.own.count > 0 && row < piece.sources.size(); ++row)
      if (piece.sources[row] != rank)
        results << go.receive(TensorBytes(load.parts[static_cast<int64_t>(row)]),
                              piece.sources[row]);
  }
  return results;
}

// Reduces the own shards, and copies the data that stays on this rank.
void combine(const RelayBufferList& all, int rank, RedOpType op) {
  const PlainDispatchGuard plain;
  for (const auto& load : all) {
    const auto& piece = load.transfer;
    if (piece.reduces() && load.own.count > 0) {
      for (size_t row = 0; row < piece.sources.size(); ++row)
        if (piece.sources[row] == rank)
          load.parts[static_cast<int64_t>(row)].copy_(
              load.input.narrow(0, piece.input_offset + load.own.begin, load.own.count));
      reduce_rows(load.carried, load.parts, op);
    }
    const auto* const here = piece.destination(rank);
    if (here == nullptr) continue;
    if (!load.travels_to(rank))
      load.output.narrow(0, here->output_offset, piece.count)
          .copy_(load.input.narrow(0, piece.input_offset, piece.count));
    else if (load.own.count > 0)
      load.output.narrow(0, here->output_offset + load.own.begin, load.own.count)
          .copy_(load.carried);
  }
}

// Sends shards to their destinations.
nccl::FirstFailedResult from_carriers(const NcclLaunch& go, const RelayBufferList& all, int rank,
                                      int size) {
  auto results = go.results();
  for (const auto& load : all) {
    const auto& piece = load.transfer;
    if (piece.is_local()) continue;
    for (const auto& to : piece.destinations)
      if (to.rank != rank && load.own.count > 0 && load.travels_to(to.rank))
        results << go.send(TensorBytes(load.carried), to.rank);
    if (!load.travels_to(rank)) continue;
    const auto begin = piece.destination(rank)->output_offset;
    for (int carrier = 0; carrier < size; ++carrier)
      if (const auto shard = nccl::relay::shard_of(piece, carrier, size);
          carrier != rank && shard.count > 0)
        results << go.receive(cut_out(load.output, begin + shard.begin, shard.count), carrier);
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
  const auto one_each = [&](const char* name, size_t count) {
    require(count == groups.size(), [&] {
      return std::string(name) + " has " + std::to_string(count) +
             " entries, expected one for each of the " + std::to_string(groups.size()) +
             " groups of all_active_ranks";
    });
  };
  one_each(kind.input_name, input.size());
  one_each(kind.output_name, output.size());
  one_each(kind.counts_name, counts.size());
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
    const auto usable = [&](const char* name, const at::Tensor& tensor, Extent extent) {
      const auto what = std::string(name) + "[" + number + "]";
      require(tensor.defined(), [&] { return what + " is an undefined tensor"; });
      require(tensor.device() == getDevice(), [&] {
        return what + " is on " + tensor.device().str() + ", the communicator on " +
               getDevice().str();
      });
      if (!is_in(ranks, getRank())) return;
      require(tensor.layout() == at::kStrided && tensor.is_contiguous(),
              [&] { return format_not_contiguous(what); });
      const auto times = extent == Extent::kOne ? 1 : static_cast<int64_t>(ranks.size());
      require(tensor.numel() % times == 0 && tensor.numel() / times == counts[g], [&] {
        return what + " has " + std::to_string(tensor.numel()) + " elements, expected " +
               std::to_string(times) + " times " + std::to_string(counts[g]);
      });
    };
    usable(kind.input_name, input[g], kind.input);
    usable(kind.output_name, output[g], kind.output);
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
  const auto here = device.events().acquire();
  device.runtime().record(here.get(), device.current_stream());
  device.runtime().wait(static_cast<gpu::NativeStream>(stream_->native_handle()), here.get());
  return *stream_;
}

WorkPtr TorchCommRCCLX::relay(const Kind& kind, const ReduceOp* op, const Tensors& input,
                              const Tensors& output, const Groups& groups, const Counts& counts,
                              bool async_op) {
  const auto now = begin_call(kind.op, async_op, {}, kind.name);
  check(kind, op, input, output, groups, counts, now.context());
  const auto& device = launch_queue()->device();
  OperationOptions options;
  std::optional<c10::StreamGuard> apart;
  if (!device.torch_device().is_cpu() && async_op) {
    // Torch's operators run on the current stream. A capture must not fork.
    if (device.runtime().capture_of(device.current_stream()) == 0) apart.emplace(async_stream());
    options.hints[hint::kUseCurrentStream.name] = "true";
  }
  const auto all = std::make_shared<RelayBufferList>();
  Tensors memory;
  for (size_t g = 0; g < groups.size(); ++g) {
    // In place is safe for all_reduce: a carrier sends back only data that was read before.
    const bool in_place =
        kind.op == OpName::all_reduce && TensorBytes(input[g]).data == TensorBytes(output[g]).data;
    const bool is_active = is_in(groups[g], getRank());
    const auto source =
        is_active && !in_place && nccl::overlap(input[g], output[g]) ? input[g].clone() : input[g];
    for (auto& piece : kind.plan(groups[g], counts[g])) {
      all->push_back(make_relay_buffers(std::move(piece), source, output[g], getRank(), getSize()));
      for (const auto& tensor : {all->back().parts, all->back().carried})
        if (tensor.defined()) memory.push_back(tensor);
    }
    memory.push_back(source);
    memory.push_back(output[g]);
  }
  const auto step = [&](const auto& body) {
    return launch(*launch_queue(), now, options, retain_storages(now, {{}, {&memory}}), body);
  };
  step([&](const NcclLaunch& go) { return to_carriers(go, *all, getRank(), getSize()); });
  const auto type = op != nullptr ? op->type() : RedOpType(RedOpType::SUM);
  step([&](const NcclLaunch& go) {
    if (device.torch_device().is_cpu())
      gpu::cpu_launch(go.stream, [all, rank = getRank(), type] { combine(*all, rank, type); });
    else
      combine(*all, getRank(), type);
    return nccl::abi::Result(nccl::abi::kSuccess);
  });
  auto work =
      step([&](const NcclLaunch& go) { return from_carriers(go, *all, getRank(), getSize()); });
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
