#include "transport/frame.hpp"

#include "transport/offer.hpp"

namespace torch::comms::transport {
namespace {

bool right_payload(const Frame& frame, uint32_t max_payload) noexcept {
  switch (frame.kind) {
    case FrameKind::kEager:
      return frame.bytes <= max_payload;
    case FrameKind::kData:
    case FrameKind::kPut:
    case FrameKind::kGot:
      return frame.bytes > 0 && frame.bytes <= max_payload;
    case FrameKind::kStart:
      return frame.bytes == 0 || Offer::can_have(frame.bytes);
    case FrameKind::kGrant:
      return frame.bytes == 0 || frame.bytes == sizeof(GrantFrame);
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

const char* wrong_with(const Frame& frame, uint32_t max_payload, unsigned lanes) noexcept {
  if (frame.kind < FrameKind::kEager || frame.kind > FrameKind::kTaken || frame.spare != 0)
    return "a frame of unknown kind";
  if (frame.lane >= lanes) return "a frame of an unknown lane";
  if (!right_payload(frame, max_payload)) return "a frame with a payload of impossible size";
  return nullptr;
}

}  // namespace torch::comms::transport
