#include "standin/kernels/collectives.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "ctran/reduction/reduction.hpp"

namespace torch::comms::standin {
namespace {

using ctran::Dtype;
using ctran::ReduceOpCode;
using kernels::Collective;

// Which bytes go from this rank to each other, and where those of the others go.
struct Route {
  const std::byte* from[kernels::kMaxRanks] = {};  // to each peer; null for none
  std::byte* into[kernels::kMaxRanks] = {};        // what each peer sends, as it is
  bool takes[kernels::kMaxRanks] = {};             // whether it sends anything
  std::byte* reduced = nullptr;                    // instead of `into`: all of it, combined
};

Route route_of(const kernels::KernelCall& call, int rank, int size, size_t part) {
  const auto* input = static_cast<const std::byte*>(call.input);
  auto* output = static_cast<std::byte*>(call.output);
  // Barriers, and nothing at all, have no memory; they go from somewhere all the same.
  static std::byte nowhere[1];
  if (input == nullptr) input = nowhere;
  if (output == nullptr) output = nowhere;
  const bool is_root = rank == call.root;
  Route route;
  for (int peer = 0; peer < size; ++peer) {
    const size_t slot = static_cast<size_t>(peer) * part;
    switch (call.collective) {
      case Collective::kExchange:
      case Collective::kSignal:
      case Collective::kWaitSignal:
      case Collective::kAllToAllVDynamic:
      case Collective::kQuantizedReduceScatter:
        break;
      case Collective::kBarrier:
      case Collective::kAllReduce:
        route.from[peer] = input;
        route.takes[peer] = true;
        route.reduced = output;
        break;
      case Collective::kReduceScatter:
        route.from[peer] = input + slot;
        route.takes[peer] = true;
        route.reduced = output;
        break;
      case Collective::kAllGather:
        route.from[peer] = input;
        route.takes[peer] = true;
        route.into[peer] = output + slot;
        break;
      case Collective::kAllToAll:
        route.from[peer] = input + slot;
        route.takes[peer] = true;
        route.into[peer] = output + slot;
        break;
      case Collective::kBroadcast:
        route.from[peer] = is_root ? input : nullptr;
        route.takes[peer] = peer == call.root;
        route.into[peer] = output;
        break;
      case Collective::kReduce:
        route.from[peer] = peer == call.root ? input : nullptr;
        route.takes[peer] = is_root;
        route.reduced = output;
        break;
      case Collective::kGather:
        route.from[peer] = peer == call.root ? input : nullptr;
        route.takes[peer] = is_root;
        route.into[peer] = output + slot;
        break;
      case Collective::kScatter:
        route.from[peer] = is_root ? input + slot : nullptr;
        route.takes[peer] = peer == call.root;
        route.into[peer] = output;
        break;
    }
  }
  return route;
}

bool is_reduction(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

size_t output_parts(Collective collective, int size) {
  const bool gathers = collective == Collective::kAllGather ||
                       collective == Collective::kAllToAll || collective == Collective::kGather;
  return gathers ? static_cast<size_t>(size) : 1;
}

// All bits set is NaN in every format of floating point that has one there.
void poison(const kernels::KernelCall& call, int size, size_t part) {
  const auto name = ctran::name_of(call.dtype);
  const bool floats = name.find("float") != name.npos || name.find("complex") != name.npos;
  if (floats && call.output != nullptr)
    std::memset(call.output, 0xff, part * output_parts(call.collective, size));
}

ctran::PremulFactor factor_of(const kernels::KernelCall& call, const ctran::Reduction& reduction) {
  ctran::PremulFactor factor;
  factor.real = call.factor_value;
  factor.integer = static_cast<uint64_t>(static_cast<int64_t>(call.factor_value));
  if (call.factor == nullptr) return factor;
  std::array<std::byte, 16> value{};
  reduction.widen(value.data(), call.factor, 1);
  float narrow;
  std::memcpy(&narrow, value.data(), sizeof narrow);
  if (reduction.accumulator() == Dtype::kFloat32) factor.real = narrow;
  if (reduction.accumulator() == Dtype::kFloat64)
    std::memcpy(&factor.real, value.data(), sizeof factor.real);
  std::memcpy(&factor.integer, call.factor, ctran::size_of(call.dtype));
  return factor;
}

}  // namespace

void run(Launch& launch, const kernels::KernelCall& call) {
  const int rank = launch.rank(), size = launch.size();
  const size_t element = ctran::size_of(call.dtype);
  const size_t part = call.collective == Collective::kBarrier ? 0 : call.count * element;
  const auto route = route_of(call, rank, size, part);
  const auto own = static_cast<size_t>(rank);
  const bool reduces = is_reduction(call.collective);
  const ctran::Reduction reduction(reduces ? call.dtype : Dtype::kUInt8,
                                   reduces ? call.op : ReduceOpCode::kSum);
  std::vector<std::byte> scaled(kChunkBytes);
  for (size_t at = 0; at == 0 || at < part; at += kChunkBytes) {
    const size_t now = std::min(kChunkBytes, part - at);
    const auto outgoing = [&](int peer) -> const std::byte* {
      const auto* from = route.from[peer] + at;
      if (!reduces || call.op != ReduceOpCode::kPremulSum) return from;
      reduction.scale(scaled.data(), from, now / element, factor_of(call, reduction));
      return scaled.data();
    };
    for (int step = 1; step < size; ++step) {
      const int peer = (rank + step) % size;
      if (route.from[peer] != nullptr) launch.send(peer, outgoing(peer), now);
    }
    std::vector<const void*> all(static_cast<size_t>(size));
    bool has_all = launch.goes_on();
    for (int peer = 0; peer < size && has_all; ++peer) {
      if (!route.takes[peer]) continue;
      all[static_cast<size_t>(peer)] = peer == rank ? outgoing(peer) : launch.receive(peer);
      has_all = all[static_cast<size_t>(peer)] != nullptr;
    }
    if (!has_all) return poison(call, size, part);
    if (reduces && route.takes[own])
      reduction.combine_all(route.reduced + at, all, now / element, static_cast<uint32_t>(size));
    for (int peer = 0; peer < size; ++peer) {
      const auto* const from = all[static_cast<size_t>(peer)];
      if (!route.takes[peer]) continue;
      if (!reduces && now > 0 && route.into[peer] != nullptr)
        std::memmove(route.into[peer] + at, from, now);
      if (peer != rank) launch.taken(peer);
    }
  }
}

}  // namespace torch::comms::standin
