#include "ctran/gpe/across_hosts.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ctran/arithmetic/reduction.hpp"
#include "ctran/device/kernel_selection.hpp"

namespace torch::comms::ctran {
namespace {

using kernels::Collective;
using std::chrono::milliseconds;

// What is waited for on the device beyond the host's limit, which is to be found first.
constexpr milliseconds kGrace{500};

uint64_t device_limit_ns(milliseconds limit) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(limit + kGrace).count());
}

bool has_fractions(Dtype dtype) {
  const auto name = name_of(dtype);
  return name.find("float") != name.npos || name.find("complex") != name.npos;
}

}  // namespace

AcrossHosts::AcrossHosts(Options options)
    : rank_(options.rank),
      hosts_(std::move(options.hosts)),
      place_(hosts_.places[static_cast<size_t>(rank_)]),
      cuts_(options.cuts),
      library_(std::move(options.library)),
      runtime_(std::move(options.runtime)),
      team_(std::move(options.team)) {
  Gpe::Options gpe{.library = library_,
                   .runtime = runtime_,
                   .rail = std::move(options.rail),
                   .ranks = {},
                   .team = team_ ? team_->control() : nullptr,
                   .staging_bytes = 0,
                   .polling_ranks = local_size(),
                   .on_failure = [this] {
                     if (team_) team_->abort();
                   }};
  if (gpe.rail) {
    gpe.ranks = hosts_.rail(place_.local);
    gpe.staging_bytes = kChunksAtOnce * cuts_.part_bytes;
  }
  gpe_ = std::make_unique<Gpe>(std::move(gpe));
}

bool AcrossHosts::takes(Dtype dtype, ReduceOpCode op) const {
  if (!Reduction::is_defined(dtype, op) || op == ReduceOpCode::kPremulSum) return false;
  return op != ReduceOpCode::kAverage || (hosts_.are_equal() && has_fractions(dtype));
}

size_t AcrossHosts::slot_begin(size_t chunk) const noexcept {
  return chunk % kChunksAtOnce * cuts_.part_bytes;
}

void AcrossHosts::launch(Collective collective, const Elements& of, const void* input, void* output,
                         const How& how, int root) {
  kernels::KernelCall call{};
  call.collective = collective;
  call.dtype = of.dtype;
  call.op = of.op;
  call.root = root;
  call.count = of.count;
  call.input = input;
  call.output = output;
  call.timeout_ns = device_limit_ns(how.limit);
  team_->launch(call, how.stream);
}

void AcrossHosts::post(Command::Kind kind, size_t chunk, const Elements& of, const How& how,
                       int root) {
  Command command{};
  command.kind = kind;
  command.dtype = of.dtype;
  command.op = of.op;
  command.root = root;
  command.begin = slot_begin(chunk);
  command.count = of.count;
  command.limit_ms = static_cast<uint64_t>(how.limit.count());
  command.chunk = chunk;
  gpe_->post(command, how.stream);
}

void AcrossHosts::await(const How& how) { gpe_->await(device_limit_ns(how.limit), how.stream); }

template <class Down, class Up>
void AcrossHosts::pipeline(size_t chunks, const Down& down, const Up& up) {
  operations_.fetch_add(1, std::memory_order_relaxed);
  constexpr size_t kLater = kChunksAtOnce - 1;
  for (size_t i = 0; i < chunks + kLater; ++i) {
    if (i < chunks) down(i);
    if (i >= kLater) up(i - kLater);
  }
}

void AcrossHosts::spread(std::byte* data, const Chunk& chunk, size_t element_bytes,
                         const How& how) {
  if (!team_) return;
  const size_t bytes = chunk.part * element_bytes;
  const auto place = [&](int rail) { return data + chunk.begin_of(rail) * element_bytes; };
  if (chunk.rails == team_->size())
    return launch(Collective::kAllGather, {bytes}, place(place_.local), place(0), how);
  for (int rail = 0; rail < chunk.rails; ++rail)
    launch(Collective::kBroadcast, {bytes}, place(rail), place(rail), how, rail);
}

void AcrossHosts::all_reduce(void* data, size_t count, Dtype dtype, ReduceOpCode op,
                             const How& how) {
  auto* const bytes = static_cast<std::byte*>(data);
  const size_t element = size_of(dtype);
  const auto chunks = chunks_of(count, element, hosts_.rails, cuts_);
  const auto own_place = [&](const Chunk& chunk) {
    return bytes + chunk.begin_of(place_.local) * element;
  };
  const auto reduce_here = [&](const Chunk& chunk) {
    const Elements part{chunk.part, dtype, op};
    if (chunk.rails == team_->size())
      return launch(Collective::kReduceScatter, part, bytes + chunk.begin * element,
                    own_place(chunk), how);
    for (int rail = 0; rail < chunk.rails; ++rail) {
      auto* const place = bytes + chunk.begin_of(rail) * element;
      launch(Collective::kReduce, part, place, place_.local == rail ? place : nullptr, how, rail);
    }
  };
  pipeline(
      chunks.size(),
      [&](size_t i) {
        const auto& chunk = chunks[i];
        if (team_) reduce_here(chunk);
        if (!is_on(chunk.rails)) return;
        runtime_->copy_to_host(slot(i), own_place(chunk), chunk.part * element, how.stream);
        post(Command::Kind::kAllReduce, i, {chunk.part, dtype, op}, how);
      },
      [&](size_t i) {
        const auto& chunk = chunks[i];
        if (is_on(chunk.rails)) {
          await(how);
          runtime_->copy_to_device(own_place(chunk), slot(i), chunk.part * element, how.stream);
        }
        spread(bytes, chunk, element, how);
      });
  gpe_->seal(data, count * element, dtype, how.stream);
}

void AcrossHosts::broadcast(void* data, size_t size_bytes, int root, const How& how) {
  auto* const bytes = static_cast<std::byte*>(data);
  const auto chunks = chunks_of(size_bytes, 1, hosts_.rails, cuts_);
  const auto from = hosts_.places[static_cast<size_t>(root)];
  const bool has_it = from.host == place_.host;  // the root is here
  pipeline(
      chunks.size(),
      [&](size_t i) {
        const auto& chunk = chunks[i];
        if (has_it && team_) {
          auto* const all = bytes + chunk.begin;
          launch(Collective::kBroadcast, {chunk.count()}, all, all, how, from.local);
        }
        if (!is_on(chunk.rails)) return;
        if (has_it)
          runtime_->copy_to_host(slot(i), bytes + chunk.begin_of(place_.local), chunk.part,
                                 how.stream);
        post(Command::Kind::kBroadcast, i, {chunk.part}, how, from.host);
      },
      [&](size_t i) {
        const auto& chunk = chunks[i];
        if (is_on(chunk.rails)) {
          await(how);
          if (!has_it)
            runtime_->copy_to_device(bytes + chunk.begin_of(place_.local), slot(i), chunk.part,
                                     how.stream);
        }
        if (!has_it) spread(bytes, chunk, 1, how);
      });
}

void AcrossHosts::barrier(const How& how) {
  const auto here = [&] {
    if (team_) launch(Collective::kBarrier, {0}, nullptr, nullptr, how);
  };
  operations_.fetch_add(1, std::memory_order_relaxed);
  here();
  if (is_on(1)) {
    post(Command::Kind::kBarrier, 0, {0}, how);
    await(how);
  }
  here();
}

void AcrossHosts::all_gather(void* output, const void* input, size_t size_bytes, const How& how) {
  auto* const out = static_cast<std::byte*>(output);
  const auto* const own = static_cast<const std::byte*>(input);
  const auto hosts = static_cast<size_t>(hosts_.count());
  const auto pieces = pieces_of(size_bytes, cuts_.part_bytes / hosts);
  const auto place = [&](size_t host, int local, const Piece& piece) {
    const int rank = hosts_.ranks[host][static_cast<size_t>(local)];
    return out + static_cast<size_t>(rank) * size_bytes + piece.begin;
  };
  // What this rank's rail has brought goes to the others of the host, and theirs comes here.
  std::vector<kernels::KernelMessage> messages;
  const auto swap_here = [&](const Piece& piece) {
    messages.clear();
    for (int peer = 0; peer < local_size(); ++peer) {
      if (peer == place_.local) continue;
      for (size_t host = 0; host < hosts; ++host) {
        messages.push_back({place(host, place_.local, piece), piece.count, peer, 0});
        messages.push_back({place(host, peer, piece), piece.count, peer, 1});
      }
    }
    team_->exchange(messages, device_limit_ns(how.limit), how.stream);
  };
  pipeline(
      pieces.size(),
      [&](size_t i) {
        const auto& piece = pieces[i];
        runtime_->copy_to_host(slot(i) + static_cast<size_t>(place_.host) * piece.count,
                               own + piece.begin, piece.count, how.stream);
        post(Command::Kind::kAllGather, i, {piece.count}, how);
      },
      [&](size_t i) {
        const auto& piece = pieces[i];
        await(how);
        for (size_t host = 0; host < hosts; ++host)
          runtime_->copy_to_device(place(host, place_.local, piece), slot(i) + host * piece.count,
                                   piece.count, how.stream);
        if (team_) swap_here(piece);
      });
}

void AcrossHosts::reduce_scatter(void* output, const void* input, size_t count, Dtype dtype,
                                 ReduceOpCode op, const How& how) {
  auto* const out = static_cast<std::byte*>(output);
  const auto* const in = static_cast<const std::byte*>(input);
  const size_t element = size_of(dtype);
  const auto hosts = static_cast<size_t>(hosts_.count());
  const auto pieces = pieces_of(count, cuts_.part_bytes / element / hosts);
  const auto place = [&](size_t host, int local, const Piece& piece) {
    const int rank = hosts_.ranks[host][static_cast<size_t>(local)];
    return in + (static_cast<size_t>(rank) * count + piece.begin) * element;
  };
  // The sums of this host's ranks, for the rank of each host that has this one's number: kernels
  // store them in host memory.
  const auto reduce_here = [&](size_t i, const Piece& piece) {
    const bool at_once = piece.count == count && hosts_.are_in_order();
    const Elements part{piece.count, dtype, op};
    for (size_t host = 0; host < hosts; ++host) {
      auto* const into = slot(i) + host * piece.count * element;
      if (at_once) {
        launch(Collective::kReduceScatter, part, place(host, 0, piece), into, how);
        continue;
      }
      for (int local = 0; local < team_->size(); ++local)
        launch(Collective::kReduce, part, place(host, local, piece),
               local == place_.local ? into : nullptr, how, local);
    }
  };
  pipeline(
      pieces.size(),
      [&](size_t i) {
        const auto& piece = pieces[i];
        if (team_) {
          reduce_here(i, piece);
        } else {
          for (size_t host = 0; host < hosts; ++host)
            runtime_->copy_to_host(slot(i) + host * piece.count * element, place(host, 0, piece),
                                   piece.count * element, how.stream);
        }
        post(Command::Kind::kReduceScatter, i, {piece.count, dtype, op}, how);
      },
      [&](size_t i) {
        const auto& piece = pieces[i];
        await(how);
        runtime_->copy_to_device(out + piece.begin * element,
                                 slot(i) + static_cast<size_t>(place_.host) * piece.count * element,
                                 piece.count * element, how.stream);
      });
  gpe_->seal(output, count * element, dtype, how.stream);
}

std::optional<CommError> AcrossHosts::stopped(const Context& context) const {
  const auto within = [&](const CommError& error) {
    auto where = context.blaming(error.context());
    if (!error.context().op.empty()) where.op = error.context().op;
    return CommError(error.code(), error.why(), where);
  };
  if (const auto failure = gpe_->failure()) return within(*failure);
  uint64_t number = 0;
  const auto stop = gpe_->stopped(number);
  if (stop == kernels::StopReason::kTimeout)
    return CommError(Errc::kTimeout,
                     "the device passed the limit while it waited for its host (command " +
                         std::to_string(number) + ")",
                     context);
  if (team_) {
    if (const auto team = team_->failure()) {
      auto where = context;
      const auto& here = hosts_.ranks[static_cast<size_t>(place_.host)];
      if (team->waited_for >= 0) where.peer = here[static_cast<size_t>(team->waited_for)];
      return to_error(
          *team, where,
          "the kernel of " + std::string(name_of(team->collective)) + " inside the host");
    }
  }
  if (stop) return CommError(Errc::kAborted, "the wait for the host was aborted", context);
  return std::nullopt;
}

void AcrossHosts::abort(const CommError& why) noexcept {
  gpe_->abort(why);
  if (team_) team_->abort();
}

void AcrossHosts::close() noexcept {
  if (team_) team_->abort();
  gpe_->close();
}

}  // namespace torch::comms::ctran
