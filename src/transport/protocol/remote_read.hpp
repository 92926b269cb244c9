#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "transport/protocol/copy_path_tuner.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::transport {

// Describes where a message lies in its sender's process, so that the receiver can read it from
// there: one copy instead of two. The memory does not change until the receiver has answered. If
// the sender must free the memory for any other reason, it first changes the descriptor's word. So
// a copy is the message if the word was still right after the copy was made; see ReadValidityWords.
struct RemoteReadDescriptor {
  static constexpr size_t kMaxSegments = 8;
  struct RemoteSegment {
    uint64_t address = 0, bytes = 0;
  };

  uint32_t slot = 0;  // in the sender's ReadValidityWords
  // The key of the sender's mappable region that contains all of the message; 0: none does.
  uint32_t region = 0;
  uint64_t word = 0;
  // How the sender wants the message to move that comes back at the same time; nullopt: it does not
  // say.
  std::optional<CopyPathTuner::CopyPath> path = std::nullopt;
  std::array<RemoteSegment, kMaxSegments> segments = {};
  size_t count = 0;

  // The descriptor as it is sent. It leaves out the length of the last segment, which follows from
  // the message's length: one segment takes 24 bytes.
  class Payload {
   public:
    explicit Payload(const RemoteReadDescriptor& offer) noexcept;
    ConstBytes bytes() const noexcept { return std::as_bytes(std::span(words_.data(), count_)); }

   private:
    std::array<uint64_t, 1 + 2 * kMaxSegments> words_;
    size_t count_ = 2;
  };
  static bool is_payload_size(size_t payload_bytes) noexcept;
  // Parses the descriptor of a message of `length` bytes.
  // Returns: nullopt if its segments do not make that length, or its slot or path is invalid.
  static std::optional<RemoteReadDescriptor> parse(ConstBytes payload, uint64_t length) noexcept;

  // Calls `take(address, bytes)` for each part of [offset, offset + bytes). The range must lie
  // inside the message.
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
