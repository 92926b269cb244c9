#include "standin/kernels/regions.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "ctran/kernels/windows/window_plan.hpp"
#include "ctran/reduction/reduction.hpp"

namespace torch::comms::standin {
namespace {

using kernels::WindowCollectiveParams;

// Bytes are copied while the launch goes on.
bool carry(Launch& launch, char* to, const char* from, size_t size_bytes) {
  if (size_bytes > 0) std::memcpy(to, from, size_bytes);
  return launch.goes_on();
}

// How the ranks of a launch meet, as on a GPU.
class WindowSync {
 public:
  WindowSync(Launch& launch, const WindowCollectiveParams& params) : launch_(launch), p_(params) {}

  // Tells where this rank's tensor is, and finds those of all that it is to tell.
  bool wait_for_launch() {
    publish_location();
    for (int peer = 0; peer < p_.size; ++peer)
      if (has(p_.push_to, peer) && !find(peer)) return false;
    return true;
  }
  char* tensor(int peer) const { return tensors_[peer]; }

  void signal(int block, uint64_t rounds) {
    for (int peer = 0; peer < p_.size; ++peer)
      if (has(p_.push_to, peer))
        std::atomic_ref(launch_.regions(peer).pushed[block][p_.rank])
            .store(kernels::tag_of(number(), rounds));
  }
  bool wait_for(int block, int source, uint64_t rounds) {
    std::atomic_ref received(launch_.regions(p_.rank).pushed[block][source]);
    return launch_.await(
        [&] { return kernels::has_reached(received.load(), kernels::tag_of(number(), rounds)); },
        source);
  }
  bool wait_for_all(uint64_t rounds) {
    for (int source = 0; source < p_.size; ++source)
      for (int block = 0; block < p_.blocks; ++block)
        if (has(p_.pushed_from, source) && !wait_for(block, source, rounds)) return false;
    return true;
  }
  static bool has(uint32_t ranks, int rank) { return (ranks >> rank & 1) != 0; }

 private:
  uint64_t number() const { return launch_.number(); }

  void publish_location() {
    for (int peer = 0; peer < p_.size; ++peer) {
      if (peer == p_.rank) continue;
      auto& words = launch_.regions(peer).locations[number() & 1][p_.rank].words;
      for (int i = 0; i < kernels::kLocationWords; ++i)
        std::atomic_ref(words[i]).store(
            kernels::location_word(p_.location, number(), launch_.print(), i));
    }
  }

  bool find(int peer) {
    auto& received = launch_.regions(p_.rank).locations[number() & 1][peer].words;
    uint64_t words[kernels::kLocationWords];
    const auto have_come = [&] {
      for (int i = 0; i < kernels::kLocationWords; ++i)
        words[i] = std::atomic_ref(received[i]).load();
      return std::all_of(words, words + kernels::kLocationWords,
                         [&](uint64_t word) { return kernels::is_of_launch(word, number()); });
    };
    if (!launch_.await(have_come, peer)) return false;
    if (!kernels::is_of_call(words, number(), launch_.print())) {
      launch_.other_call(peer);
      return false;
    }
    if (!kernels::matches_location(words, p_.location, p_.has_same_offset)) {
      launch_.mismatch(peer, kernels::kWindowMismatch);
      return false;
    }
    tensors_[peer] = p_.memory[peer] + kernels::offset_in(words);
    return true;
  }

  Launch& launch_;
  const WindowCollectiveParams& p_;
  char* tensors_[kernels::kMaxRanks] = {};
};

class Pushes {
 public:
  Pushes(Launch& launch, const WindowCollectiveParams& params)
      : launch_(launch), p_(params), sync_(launch, params) {}

  bool run() {
    if (!sync_.wait_for_launch()) return false;
    if (p_.own_to != nullptr && !carry(launch_, p_.own_to, p_.own, p_.bytes)) return false;
    const bool forwards = p_.collective == kernels::Collective::kBroadcast && p_.rank != p_.root;
    for (uint64_t round = 0; round < p_.rounds.count; ++round)
      for (int block = 0; block < p_.blocks; ++block) {
        if (forwards && !sync_.wait_for(block, p_.root, round + 1)) return false;
        if (!push(block, round)) return false;
        sync_.signal(block, round + 1);
      }
    return sync_.wait_for_all(p_.rounds.count);
  }

 private:
  bool push(int block, uint64_t round) {
    for (int peer = 0; peer < p_.size; ++peer) {
      if (!WindowSync::has(p_.push_to, peer)) continue;
      const auto what =
          kernels::push_of(p_.collective, p_.root, p_.bytes, p_.forwarded, p_.rank, peer);
      const char* const from = (what.is_forwarded ? p_.output : p_.input) + what.from;
      const auto tiles = kernels::tiles_of_block(what.bytes, p_.blocks, block);
      const auto end = std::min((round + 1) * p_.rounds.tiles, tiles);
      for (uint64_t i = round * p_.rounds.tiles; i < end; ++i) {
        const size_t at = (static_cast<size_t>(block) + i * static_cast<size_t>(p_.blocks)) *
                          kernels::kWindowTile;
        if (!carry(launch_, sync_.tensor(peer) + what.into + at, from + at,
                   std::min(kernels::kWindowTile, what.bytes - at)))
          return false;
      }
    }
    return true;
  }

  Launch& launch_;
  const WindowCollectiveParams& p_;
  WindowSync sync_;
};

// A part of the result, of the inputs where they lie.
bool reduce(Launch& launch, const WindowCollectiveParams& p, ctran::ReduceOpCode op) {
  WindowSync sync(launch, p);
  if (!sync.wait_for_launch()) return false;
  const auto part = p.reduce_range;
  const ctran::Reduction reduction(p.dtype, op);
  std::vector<std::byte> reduced(kChunkBytes);
  for (size_t at = part.begin; at < part.end; at += kChunkBytes) {
    const size_t now = std::min(kChunkBytes, part.end - at);
    std::vector<const void*> operands;
    for (int rank = 0; rank < p.size; ++rank)
      operands.push_back((rank == p.rank ? p.input : sync.tensor(rank)) + at);
    reduction.combine_all(reduced.data(), operands, now / ctran::size_of(p.dtype),
                          static_cast<uint32_t>(p.size));
    const auto* const from = reinterpret_cast<const char*>(reduced.data());
    if (p.collective == kernels::Collective::kReduceScatter &&
        !carry(launch, p.output + (at - part.begin), from, now))
      return false;
    for (int rank = 0; rank < p.size; ++rank)
      if (WindowSync::has(p.write_to, rank) &&
          !carry(launch, (rank == p.rank ? p.output : sync.tensor(rank)) + at, from, now))
        return false;
  }
  for (int block = 0; block < p.blocks; ++block) sync.signal(block, 1);
  return sync.wait_for_all(1);
}

}  // namespace

void run(Launch& launch, const RegionLaunch& one) {
  if (!launch.goes_on()) return;
  if (one.reduces)
    reduce(launch, one.params, one.op);
  else
    Pushes(launch, one.params).run();
}

}  // namespace torch::comms::standin
