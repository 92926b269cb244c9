#include "transport/protocol/frame.hpp"

#include "transport/protocol/remote_read.hpp"

namespace torch::comms::transport {
namespace {

bool has_valid_payload(const Frame& frame, uint32_t max_payload) noexcept {
  switch (frame.kind) {
    case FrameKind::kEager:
      return frame.bytes <= max_payload;
    case FrameKind::kData:
    case FrameKind::kPut:
    case FrameKind::kGetReply:
      return frame.bytes > 0 && frame.bytes <= max_payload;
    case FrameKind::kRts:
      return frame.bytes == 0 || RemoteReadDescriptor::is_payload_size(frame.bytes);
    case FrameKind::kCts:
      return frame.bytes == 0 || frame.bytes == sizeof(CtsFrame);
    case FrameKind::kSignal:
      return frame.bytes == sizeof(SignalFrame);
    case FrameKind::kGet:
      return frame.bytes == sizeof(GetFrame);
    case FrameKind::kFlush:
      return frame.bytes == sizeof(FlushFrame);
    default:
      return frame.bytes == 0;
  }
}

}  // namespace

const char* frame_error(const Frame& frame, uint32_t max_payload, unsigned channels) noexcept {
  if (frame.kind < FrameKind::kEager || frame.kind > FrameKind::kReadDone || frame.spare != 0)
    return "frame of unknown kind";
  if (frame.channel >= channels) return "frame on an unknown channel";
  if (!has_valid_payload(frame, max_payload)) return "frame with a payload of invalid size";
  return nullptr;
}

}  // namespace torch::comms::transport
