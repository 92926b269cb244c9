#pragma once

#include <torchcomms/device/copy.hpp>
#include <torchcomms/device/waiting.hpp>

namespace torchcomms::device {

// The link to a rank.
enum class TransportType : int { kSelf = 0, kNvlink = 1, kIbgda = 2 };

// The position of a message in the byte stream from one rank to another. The stream passes through
// a ring of kRingBytes. A message has a header of 16 bytes, then its data, padded to 16 bytes. Both
// sides compute the same positions.
struct Stretch {
  uint64_t begin, end;

  TC_ANYWHERE Stretch(uint64_t before, uint64_t bytes)
      : begin(before), end(before + kHeadBytes + (bytes + 15) / 16 * 16) {}
  // Returns: the number of bytes to move at once from `at` on: at most `most`, and not beyond the
  // end of the ring.
  TC_ANYWHERE uint64_t piece(uint64_t at, uint64_t most) const {
    const uint64_t to_wrap = kRingBytes - at % kRingBytes, left = end - at;
    const uint64_t least = most < to_wrap ? most : to_wrap;
    return least < left ? least : left;
  }
  static constexpr uint64_t kHeadBytes = 16;
};

// Rounds the requested piece size to a multiple of 16 bytes and to at most half a ring. Thus both
// sides have room for a piece of the peer's size. 0 means the default.
TC_ANYWHERE uint64_t piece_bytes(uint64_t asked) {
  constexpr uint64_t kMost = kRingBytes / 2;
  if (asked == 0) return kPieceBytes;
  const uint64_t whole = asked < 16 ? 16 : asked / 16 * 16;
  return whole < kMost ? whole : kMost;
}

// Messages, signals and barriers between pairs of ranks, for kernels. The object is at the address
// that get_device_transport() returns. Scope, order, limits and failure are as for
// TorchCommDeviceWindow. A rank may be its own peer.
class TorchCommDeviceTransport {
 public:
  TC_DEVICE int my_rank() const { return state_.team.rank; }
  TC_DEVICE int n_ranks() const { return state_.team.size; }
  TC_DEVICE int num_nvl_peers() const { return n_ranks() - 1; }
  // Returns: a TransportType as a number, or kInvalid.
  TC_DEVICE int type(int rank) const {
    if (!is_rank(rank)) return kInvalid;
    return static_cast<int>(rank == my_rank() ? TransportType::kSelf : TransportType::kNvlink);
  }

  // Sends a message to `peer`, which receives it with recv(). It returns when the whole message is
  // in the ring of the peer, so a message larger than the ring waits for its receive. Messages of
  // one direction follow each other: one scope at a time sends to a peer, and one receives from it.
  // `max_signal_bytes`: how many bytes are announced to the peer at once (default 64 KiB); the two
  // sides may use different values.
  TC_DEVICE int send(int peer, const void* from, uint64_t bytes, uint64_t max_signal_bytes = 0,
                     CoopScope scope = CoopScope::BLOCK) const {
    if (!is_rank(peer)) return kInvalid;
    const Group group(scope);
    group.sync();
    PairWords& own = post(my_rank(), peer);
    PairWords& there = post(peer, my_rank());
    char* const ring = ring_of(peer, my_rank());
    const Stretch stretch(own.sent, bytes);
    const uint64_t number = own.sends;
    const auto await_room = [&](uint64_t end) {
      return wait_until(state_.team, group, peer, [&own, &group, end] {
        return !group.is_leader() || has_come(load_acquire(&own.taken) + kRingBytes, end);
      });
    };
    const auto put = [&](const Piece& piece) {
      if (piece.has_head && group.is_leader()) {
        auto* const head = reinterpret_cast<uint64_t*>(ring + stretch.begin % kRingBytes);
        head[0] = bytes;
        head[1] = number;
      }
      copy_bytes(ring + piece.in_ring, static_cast<const char*>(from) + piece.in_message,
                 piece.bytes, group);
    };
    const auto result =
        for_pieces(stretch, bytes, max_signal_bytes, group, &there.came, await_room, put);
    if (result != kDone) return result;
    if (group.is_leader()) {
      own.sent = stretch.end;
      own.sends = number + 1;
    }
    group.sync();
    return kDone;
  }

  // Receives the next message of `peer`, which must have exactly this size. Otherwise the
  // communicator ends on both sides, and the call returns kMismatched.
  TC_DEVICE int recv(int peer, void* into, uint64_t bytes, uint64_t max_signal_bytes = 0,
                     CoopScope scope = CoopScope::BLOCK) const {
    if (!is_rank(peer)) return kInvalid;
    const Group group(scope);
    group.sync();
    PairWords& own = post(my_rank(), peer);
    PairWords& there = post(peer, my_rank());
    const char* const ring = ring_of(my_rank(), peer);
    const Stretch stretch(own.received, bytes);
    const uint64_t number = own.receives;
    const auto come_to = [&](uint64_t wanted) {
      return wait_until(state_.team, group, peer, [&own, &group, wanted] {
        return !group.is_leader() || has_come(load_acquire(&own.came), wanted);
      });
    };
    // A sender of a shorter message never fills a whole piece of this message, so the header is
    // checked first.
    if (const auto result = come_to(stretch.begin + Stretch::kHeadBytes); result != kDone)
      return result;
    const auto* const head = reinterpret_cast<const uint64_t*>(ring + stretch.begin % kRingBytes);
    if (head[0] != bytes || head[1] != number) {
      if (group.is_leader()) {
        stop(state_.team, kStopMismatch, peer);
        report(state_.team, kStopMismatch, peer);
      }
      return kMismatched;
    }
    const auto take = [&](const Piece& piece) {
      copy_bytes(static_cast<char*>(into) + piece.in_message, ring + piece.in_ring, piece.bytes,
                 group);
    };
    const auto result =
        for_pieces(stretch, bytes, max_signal_bytes, group, &there.taken, come_to, take);
    if (result != kDone) return result;
    if (group.is_leader()) {
      own.received = stretch.end;
      own.receives = number + 1;
    }
    group.sync();
    return kDone;
  }

  // Sets or adds to a signal of `peer` for this rank. Each rank has kTransportSignals of them for
  // every peer.
  TC_DEVICE int signal(int peer, int signal_id, SignalOp op = SignalOp::ADD, uint64_t value = 1,
                       CoopScope scope = CoopScope::THREAD) const {
    if (!is_rank(peer) || signal_id < 0 || signal_id >= kTransportSignals) return kInvalid;
    const Group group(scope);
    group.sync();
    if (!group.is_leader()) return kDone;
    uint64_t* const word = &post(peer, my_rank()).signals[signal_id];
    fence_system();
    if (op == SignalOp::SET)
      store_fenced(word, value);
    else
      add_fenced(word, value);
    return kDone;
  }
  // Waits until the signal that `peer` sets on this rank compares with `value`. The signal keeps
  // its value.
  TC_DEVICE int wait_signal(int peer, int signal_id, CmpOp cmp, uint64_t value,
                            CoopScope scope = CoopScope::THREAD) const {
    if (!is_rank(peer) || signal_id < 0 || signal_id >= kTransportSignals) return kInvalid;
    const uint64_t* const word = &post(my_rank(), peer).signals[signal_id];
    const Group group(scope);
    return wait_until(state_.team, group, peer, [&] {
      return !group.is_leader() || compares(cmp, load_acquire(word), value);
    });
  }

  // Waits until both ranks have entered the barrier equally often. A pair has kTransportBarriers
  // barriers.
  TC_DEVICE int barrier(int peer, int barrier_id, CoopScope scope = CoopScope::THREAD) const {
    if (!is_rank(peer) || barrier_id < 0 || barrier_id >= kTransportBarriers) return kInvalid;
    const Group group(scope);
    group.sync();
    PairWords& own = post(my_rank(), peer);
    const uint64_t round = own.rounds[barrier_id] + 1;
    if (group.is_leader()) {
      fence_system();
      store_fenced(&post(peer, my_rank()).barriers[barrier_id], round);
    }
    const auto result = wait_until(state_.team, group, peer, [&] {
      return !group.is_leader() || has_come(load_acquire(&own.barriers[barrier_id]), round);
    });
    if (result == kDone && group.is_leader()) own.rounds[barrier_id] = round;
    group.sync();
    return result;
  }

 private:
  // The position of a piece in the ring and in the message.
  struct Piece {
    bool has_head;
    uint64_t in_ring, in_message, bytes;
  };
  TC_DEVICE static Piece piece_at(const Stretch& stretch, uint64_t at, uint64_t piece,
                                  uint64_t bytes) {
    const bool has_head = at == stretch.begin;
    const uint64_t head = has_head ? Stretch::kHeadBytes : 0;
    const uint64_t offset = at + head - stretch.begin - Stretch::kHeadBytes;
    const uint64_t left = offset < bytes ? bytes - offset : 0;
    const uint64_t room = piece > head ? piece - head : 0;
    return {has_head, at % kRingBytes + head, offset, room < left ? room : left};
  }
  // Moves a message piece by piece: waits for the end of the piece, moves it, and announces it to
  // the peer.
  template <class Await, class Move>
  TC_DEVICE static Result for_pieces(const Stretch& stretch, uint64_t bytes,
                                     uint64_t max_signal_bytes, const Group& group,
                                     uint64_t* announced, const Await& await, const Move& move) {
    const uint64_t most = piece_bytes(max_signal_bytes);
    for (uint64_t at = stretch.begin; at < stretch.end;) {
      const uint64_t piece = stretch.piece(at, most);
      if (const auto result = await(at + piece); result != kDone) return result;
      move(piece_at(stretch, at, piece, bytes));
      group.sync();
      at += piece;
      if (!group.is_leader()) continue;
      fence_system();
      store_fenced(announced, at);
    }
    return kDone;
  }

  TC_DEVICE bool is_rank(int rank) const { return rank >= 0 && rank < n_ranks(); }
  // The words that `owner` keeps for `other`.
  TC_DEVICE PairWords& post(int owner, int other) const {
    return state_.areas[owner]->posts[other];
  }
  TC_DEVICE char* ring_of(int owner, int source) const {
    return reinterpret_cast<char*>(state_.areas[owner] + 1) +
           static_cast<uint64_t>(source) * kRingBytes;
  }

  TransportState state_;
};

}  // namespace torchcomms::device
