#pragma once

#include "ctran/kernels/windows/window_layout.hpp"

// Layout of a workspace: pure functions of the number of ranks. It combines the areas that
// layout.hpp, message_layout.hpp and window_layout.hpp describe.
//
// The first part serves small collectives, messages and windows. The rest serves large collectives
// on memory outside of windows, window all-reduces that push operands, and longer rings of large
// messages. The rest may be allocated later than the first part, between two launches; it is then
// filled with kLateFill.
namespace torch::comms::ctran::kernels {

struct WorkspaceLayout {
  // Offsets from the beginning of the workspace.
  size_t acks, ll, mailboxes, tiles, chunks, window_sync_words;
  size_t rest;  // the first device page that has nothing of the first part
  size_t ll128, operands, more_chunks;
  size_t bytes;  // of the whole workspace

  // A multiple of every page size of device memory.
  static constexpr size_t kDevicePage = size_t{2} << 20;

  constexpr explicit WorkspaceLayout(int ranks) {
    const auto peers = static_cast<size_t>(ranks - 1);
    acks = kPage;
    ll = after(acks, sizeof(uint64_t) * kMaxRanks * static_cast<size_t>(ll128_workers(ranks)));
    mailboxes = after(ll, 2 * peers * generation_bytes(PacketProtocol::kLL, ranks));
    tiles = after(mailboxes, peers * sizeof(Mailbox));
    chunks = after(tiles, peers * tiles_bytes());
    window_sync_words = after(chunks, peers * chunks_bytes(first_chunks(ranks)));
    rest = ll128 = whole(window_sync_words + sizeof(WindowSyncWords), kDevicePage);
    operands = after(ll128, 2 * peers * generation_bytes(PacketProtocol::kLL128, ranks));
    more_chunks = operands + (has_operand_slots(ranks) ? peers * operands_bytes() : 0);
    bytes = more_chunks + peers * chunks_bytes(chunk_ring(ranks) - first_chunks(ranks));
  }

  constexpr ChunkRings rings(int ranks, bool lacks_rest) const {
    const auto all = static_cast<uint32_t>(chunk_ring(ranks)),
               firsts = static_cast<uint32_t>(first_chunks(ranks));
    return {chunks, more_chunks, firsts * kChunk, (all - firsts) * kChunk,
            lacks_rest || !has_late_chunks(ranks) ? 0 : kWholeRing};
  }

  constexpr size_t slots_offset(PacketProtocol protocol) const {
    return protocol == PacketProtocol::kLL ? ll : ll128;
  }

 private:
  static constexpr size_t kPage = 4096;
  static_assert(sizeof(WorkspaceHeader) <= kPage);
  static constexpr size_t whole(size_t bytes, size_t page) {
    return (bytes + page - 1) / page * page;
  }
  static constexpr size_t after(size_t offset, size_t size_bytes) {
    return whole(offset + size_bytes, kPage);
  }
};

}  // namespace torch::comms::ctran::kernels
