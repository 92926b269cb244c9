#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "transport/protocol/copy_path_tuner.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::transport {

// Where a message lies in its sender's process, for a receiver that can copy it out of there: one
// copy instead of two. It stays as it is until the receiver has answered; before the sender's
// memory is free for any other reason, its word changes. So a copy is the message if the word was
// right after it was made: ReadValidityWords.
struct RemoteReadDescriptor {
  static constexpr size_t kMaxSegments = 8;
  struct RemoteSegment {
    uint64_t address = 0, bytes = 0;
  };

  uint32_t slot = 0;  // of the sender's words
  uint32_t region =
      0;  // the key of the sender's region that holds all of it; 0: none that is mapped
  uint64_t word = 0;
  // How its sender will have the message move that comes back at the same time; nothing: it does
  // not know.
  std::optional<CopyPathTuner::CopyPath> path = std::nullopt;
  std::array<RemoteSegment, kMaxSegments> segments = {};
  size_t count = 0;

  // As it travels, without the length of the last piece, which the message's gives: in 24 bytes
  // where there is one piece.
  class Payload {
   public:
    explicit Payload(const RemoteReadDescriptor& offer) noexcept;
    ConstBytes bytes() const noexcept { return std::as_bytes(std::span(words_.data(), count_)); }

   private:
    std::array<uint64_t, 1 + 2 * kMaxSegments> words_;
    size_t count_ = 2;
  };
  static bool is_payload_size(size_t payload_bytes) noexcept;
  // Of a message of `length` bytes; nothing where its pieces do not make that, or no slot or way is
  // meant.
  static std::optional<RemoteReadDescriptor> parse(ConstBytes payload, uint64_t length) noexcept;

  // Calls `take(address, bytes)` for each part of [offset, offset + bytes), which is inside.
  template <class Take>
  void visit(uint64_t offset, uint64_t bytes, const Take& take) const {
    for (size_t i = 0; i < count && bytes > 0; ++i) {
      const auto& piece = segments[i];
      if (offset >= piece.bytes) {
        offset -= piece.bytes;
        continue;
      }
      const uint64_t part = piece.bytes - offset < bytes ? piece.bytes - offset : bytes;
      take(piece.address + offset, part);
      bytes -= part;
      offset = 0;
    }
  }
};

}  // namespace torch::comms::transport
