#include "ctran/hierarchical/hierarchical.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ctran/reduction/reduction.hpp"
#include "ctran/team/kernel_selection.hpp"

namespace torch::comms::ctran {
namespace {

using kernels::Collective;
using std::chrono::milliseconds;

// How much longer kernels wait than the host, so that the host finds a timeout first.
constexpr milliseconds kGrace{500};

uint64_t device_timeout_ns(milliseconds limit) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(limit + kGrace).count());
}

bool has_fractions(Dtype dtype) {
  const auto name = name_of(dtype);
  return name.find("float") != name.npos || name.find("complex") != name.npos;
}

}  // namespace

HierarchicalCollectives::HierarchicalCollectives(Options options)
    : rank_(options.rank),
      topology_(std::move(options.topology)),
      host_rank_(topology_.host_ranks[static_cast<size_t>(rank_)]),
      chunk_sizes_(options.chunk_sizes),
      library_(std::move(options.library)),
      runtime_(std::move(options.runtime)),
      team_(std::move(options.team)) {
  Gpe::Options gpe{.library = library_,
                   .runtime = runtime_,
                   .rail = std::move(options.rail),
                   .ranks = {},
                   .team_control = team_ ? team_->control() : nullptr,
                   .staging_bytes = 0,
                   .polling_ranks = local_size(),
                   .on_failure = [this] {
                     if (team_) team_->abort();
                   }};
  if (gpe.rail) {
    gpe.ranks = topology_.rail(host_rank_.local_rank);
    gpe.staging_bytes = kPipelineDepth * chunk_sizes_.part_bytes;
  }
  gpe_ = std::make_unique<Gpe>(std::move(gpe));
}

bool HierarchicalCollectives::can_run(Dtype dtype, ReduceOpCode op) const {
  if (!Reduction::is_defined(dtype, op) || op == ReduceOpCode::kPremulSum) return false;
  return op != ReduceOpCode::kAverage || (topology_.has_equal_hosts() && has_fractions(dtype));
}

size_t HierarchicalCollectives::slot_begin(size_t chunk) const noexcept {
  return chunk % kPipelineDepth * chunk_sizes_.part_bytes;
}

void HierarchicalCollectives::launch(Collective collective, const ElementSpan& of,
                                     const void* input, void* output, const HierarchicalStep& how,
                                     int root) {
  kernels::KernelCall call{};
  call.collective = collective;
  call.dtype = of.dtype;
  call.op = of.op;
  call.root = root;
  call.count = of.count;
  call.input = input;
  call.output = output;
  call.timeout_ns = device_timeout_ns(how.timeout);
  team_->launch(call, how.stream);
}

void HierarchicalCollectives::post(GpeCommand::Kind kind, size_t chunk, const ElementSpan& of,
                                   const HierarchicalStep& how, int root) {
  GpeCommand command{};
  command.kind = kind;
  command.dtype = of.dtype;
  command.op = of.op;
  command.root = root;
  command.begin = slot_begin(chunk);
  command.count = of.count;
  command.timeout_ms = static_cast<uint64_t>(how.timeout.count());
  command.chunk = chunk;
  gpe_->post(command, how.stream);
}

void HierarchicalCollectives::wait(const HierarchicalStep& how) {
  gpe_->wait(device_timeout_ns(how.timeout), how.stream);
}

template <class Down, class Up>
void HierarchicalCollectives::pipeline(size_t chunks, const Down& down, const Up& up) {
  operations_.fetch_add(1, std::memory_order_relaxed);
  constexpr size_t kLater = kPipelineDepth - 1;
  for (size_t i = 0; i < chunks + kLater; ++i) {
    if (i < chunks) down(i);
    if (i >= kLater) up(i - kLater);
  }
}

void HierarchicalCollectives::distribute(std::byte* data, const RailChunk& chunk,
                                         size_t element_bytes, const HierarchicalStep& how) {
  if (!team_) return;
  const size_t bytes = chunk.part * element_bytes;
  const auto place = [&](int rail) { return data + chunk.begin_of(rail) * element_bytes; };
  if (chunk.rails == team_->size())
    return launch(Collective::kAllGather, {bytes}, place(host_rank_.local_rank), place(0), how);
  for (int rail = 0; rail < chunk.rails; ++rail)
    launch(Collective::kBroadcast, {bytes}, place(rail), place(rail), how, rail);
}

void HierarchicalCollectives::all_reduce(void* data, size_t count, Dtype dtype, ReduceOpCode op,
                                         const HierarchicalStep& how) {
  auto* const bytes = static_cast<std::byte*>(data);
  const size_t element = size_of(dtype);
  const auto chunks = split_into_chunks(count, element, topology_.rails, chunk_sizes_);
  const auto own_place = [&](const RailChunk& chunk) {
    return bytes + chunk.begin_of(host_rank_.local_rank) * element;
  };
  const auto reduce_in_host = [&](const RailChunk& chunk) {
    const ElementSpan part{chunk.part, dtype, op};
    if (chunk.rails == team_->size())
      return launch(Collective::kReduceScatter, part, bytes + chunk.begin * element,
                    own_place(chunk), how);
    for (int rail = 0; rail < chunk.rails; ++rail) {
      auto* const place = bytes + chunk.begin_of(rail) * element;
      launch(Collective::kReduce, part, place, host_rank_.local_rank == rail ? place : nullptr, how,
             rail);
    }
  };
  pipeline(
      chunks.size(),
      [&](size_t i) {
        const auto& chunk = chunks[i];
        if (team_) reduce_in_host(chunk);
        if (!has_rail(chunk.rails)) return;
        runtime_->copy_to_host(slot(i), own_place(chunk), chunk.part * element, how.stream);
        post(GpeCommand::Kind::kAllReduce, i, {chunk.part, dtype, op}, how);
      },
      [&](size_t i) {
        const auto& chunk = chunks[i];
        if (has_rail(chunk.rails)) {
          wait(how);
          runtime_->copy_to_device(own_place(chunk), slot(i), chunk.part * element, how.stream);
        }
        distribute(bytes, chunk, element, how);
      });
  gpe_->poison_output(data, count * element, dtype, how.stream);
}

void HierarchicalCollectives::broadcast(void* data, size_t size_bytes, int root,
                                        const HierarchicalStep& how) {
  auto* const bytes = static_cast<std::byte*>(data);
  const auto chunks = split_into_chunks(size_bytes, 1, topology_.rails, chunk_sizes_);
  const auto from = topology_.host_ranks[static_cast<size_t>(root)];
  const bool is_root_host = from.host == host_rank_.host;  // the root is on this host
  pipeline(
      chunks.size(),
      [&](size_t i) {
        const auto& chunk = chunks[i];
        if (is_root_host && team_) {
          auto* const all = bytes + chunk.begin;
          launch(Collective::kBroadcast, {chunk.count()}, all, all, how, from.local_rank);
        }
        if (!has_rail(chunk.rails)) return;
        if (is_root_host)
          runtime_->copy_to_host(slot(i), bytes + chunk.begin_of(host_rank_.local_rank), chunk.part,
                                 how.stream);
        post(GpeCommand::Kind::kBroadcast, i, {chunk.part}, how, from.host);
      },
      [&](size_t i) {
        const auto& chunk = chunks[i];
        if (has_rail(chunk.rails)) {
          wait(how);
          if (!is_root_host)
            runtime_->copy_to_device(bytes + chunk.begin_of(host_rank_.local_rank), slot(i),
                                     chunk.part, how.stream);
        }
        if (!is_root_host) distribute(bytes, chunk, 1, how);
      });
}

void HierarchicalCollectives::barrier(const HierarchicalStep& how) {
  const auto barrier_in_host = [&] {
    if (team_) launch(Collective::kBarrier, {0}, nullptr, nullptr, how);
  };
  operations_.fetch_add(1, std::memory_order_relaxed);
  barrier_in_host();
  if (has_rail(1)) {
    post(GpeCommand::Kind::kBarrier, 0, {0}, how);
    wait(how);
  }
  barrier_in_host();
}

void HierarchicalCollectives::all_gather(void* output, const void* input, size_t size_bytes,
                                         const HierarchicalStep& how) {
  auto* const out = static_cast<std::byte*>(output);
  const auto* const own = static_cast<const std::byte*>(input);
  const auto hosts = static_cast<size_t>(topology_.count());
  const auto pieces = split_evenly(size_bytes, chunk_sizes_.part_bytes / hosts);
  const auto place = [&](size_t host, int local, const StagingSlice& piece) {
    const int rank = topology_.ranks[host][static_cast<size_t>(local)];
    return out + static_cast<size_t>(rank) * size_bytes + piece.begin;
  };
  // Exchanges, within the host, what the rails of its ranks have received.
  std::vector<kernels::KernelMessage> messages;
  const auto exchange_in_host = [&](const StagingSlice& piece) {
    messages.clear();
    for (int peer = 0; peer < local_size(); ++peer) {
      if (peer == host_rank_.local_rank) continue;
      for (size_t host = 0; host < hosts; ++host) {
        messages.push_back({place(host, host_rank_.local_rank, piece), piece.count, peer, 0});
        messages.push_back({place(host, peer, piece), piece.count, peer, 1});
      }
    }
    team_->exchange(messages, device_timeout_ns(how.timeout), how.stream);
  };
  pipeline(
      pieces.size(),
      [&](size_t i) {
        const auto& piece = pieces[i];
        runtime_->copy_to_host(slot(i) + static_cast<size_t>(host_rank_.host) * piece.count,
                               own + piece.begin, piece.count, how.stream);
        post(GpeCommand::Kind::kAllGather, i, {piece.count}, how);
      },
      [&](size_t i) {
        const auto& piece = pieces[i];
        wait(how);
        for (size_t host = 0; host < hosts; ++host)
          runtime_->copy_to_device(place(host, host_rank_.local_rank, piece),
                                   slot(i) + host * piece.count, piece.count, how.stream);
        if (team_) exchange_in_host(piece);
      });
}

void HierarchicalCollectives::reduce_scatter(void* output, const void* input, size_t count,
                                             Dtype dtype, ReduceOpCode op,
                                             const HierarchicalStep& how) {
  auto* const out = static_cast<std::byte*>(output);
  const auto* const in = static_cast<const std::byte*>(input);
  const size_t element = size_of(dtype);
  const auto hosts = static_cast<size_t>(topology_.count());
  const auto pieces = split_evenly(count, chunk_sizes_.part_bytes / element / hosts);
  const auto place = [&](size_t host, int local, const StagingSlice& piece) {
    const int rank = topology_.ranks[host][static_cast<size_t>(local)];
    return in + (static_cast<size_t>(rank) * count + piece.begin) * element;
  };
  // Reduces over the ranks of this host, for the rank of each host with this local rank. Kernels
  // store the sums in host memory.
  const auto reduce_in_host = [&](size_t i, const StagingSlice& piece) {
    const bool at_once = piece.count == count && topology_.is_host_major();
    const ElementSpan part{piece.count, dtype, op};
    for (size_t host = 0; host < hosts; ++host) {
      auto* const into = slot(i) + host * piece.count * element;
      if (at_once) {
        launch(Collective::kReduceScatter, part, place(host, 0, piece), into, how);
        continue;
      }
      for (int local = 0; local < team_->size(); ++local)
        launch(Collective::kReduce, part, place(host, local, piece),
               local == host_rank_.local_rank ? into : nullptr, how, local);
    }
  };
  pipeline(
      pieces.size(),
      [&](size_t i) {
        const auto& piece = pieces[i];
        if (team_) {
          reduce_in_host(i, piece);
        } else {
          for (size_t host = 0; host < hosts; ++host)
            runtime_->copy_to_host(slot(i) + host * piece.count * element, place(host, 0, piece),
                                   piece.count * element, how.stream);
        }
        post(GpeCommand::Kind::kReduceScatter, i, {piece.count, dtype, op}, how);
      },
      [&](size_t i) {
        const auto& piece = pieces[i];
        wait(how);
        runtime_->copy_to_device(
            out + piece.begin * element,
            slot(i) + static_cast<size_t>(host_rank_.host) * piece.count * element,
            piece.count * element, how.stream);
      });
  gpe_->poison_output(output, count * element, dtype, how.stream);
}

std::optional<CommError> HierarchicalCollectives::failure(const Context& context) const {
  const auto with_context = [&](const CommError& error) {
    auto where = context.blaming(error.context());
    if (!error.context().op.empty()) where.op = error.context().op;
    return CommError(error.code(), error.why(), where);
  };
  if (const auto failure = gpe_->failure()) return with_context(*failure);
  uint64_t number = 0;
  const auto stop = gpe_->stop_reason(number);
  if (stop == kernels::StopReason::kTimeout)
    return CommError(Errc::kTimeout,
                     "the GPU timed out while it waited for the GPE thread of its host (command " +
                         std::to_string(number) + ")",
                     context);
  if (team_) {
    if (const auto team = team_->failure()) {
      auto where = context;
      const auto& local_ranks = topology_.ranks[static_cast<size_t>(host_rank_.host)];
      if (team->waited_for >= 0) where.peer = local_ranks[static_cast<size_t>(team->waited_for)];
      return to_error(
          *team, where,
          "the kernel of " + std::string(name_of(team->collective)) + " inside the host");
    }
  }
  if (stop)
    return CommError(Errc::kAborted,
                     "the wait of the GPU for the GPE thread of its host was aborted", context);
  return std::nullopt;
}

void HierarchicalCollectives::abort(const CommError& why) noexcept {
  gpe_->abort(why);
  if (team_) team_->abort();
}

void HierarchicalCollectives::close() noexcept {
  if (team_) team_->abort();
  gpe_->close();
}

}  // namespace torch::comms::ctran
