#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <torchcomms/base/export.hpp>

namespace torch::comms::transport {

// What ranks say to each other over a channel.
enum class FrameKind : uint8_t {
  kEager = 1,   // a whole message: stream, sequence, key = its tag
  kRts,         // the length of a message that waits for its grant: stream, sequence, value, key;
                // payload: none, or an RemoteReadDescriptor
  kCts,         // memory is ready for it: stream, sequence, value = its capacity, key = its tag;
                // payload: none, or CtsFrame
  kNack,        // the receive does not fit: stream, sequence, value = its capacity
  kData,        // part of a granted message: stream, sequence, value = where in the message
  kCredit,      // `value` bytes of eager messages have been taken
  kPut,         // into region `stream` at `value`, with its key; sequence: see below
  kSignal,      // on the counter in region `stream` at `value`; payload SignalFrame
  kGet,         // from region `stream` at `value`; sequence; payload GetFrame
  kGetReply,    // part of the answer: sequence, value = where in it
  kGetNack,     // sequence
  kFlush,       // sequence, of its own; payload FlushFrame
  kFlushAck,    // sequence; value = operations refused since the last one
  kPutSkipped,  // `value` bytes of puts will not come, their operation has ended; sequence as
                // kPut's
  kReadDone,    // all of an offered message has been copied: stream, sequence
};

// Signals and flushes are counted from 0 by whoever sends them. The sequence of a put is the number
// of the next one then, which says that it comes after it.

// Sent before each payload as it stands. Its numbers are not to be trusted before the peer's
// protocol has checked them.
struct Frame {
  FrameKind kind = FrameKind::kEager;
  uint8_t channel = 0;   // which of the channel's ordered lanes it takes
  uint16_t spare = 0;    // 0
  uint32_t ordinal = 0;  // of the frame in its lane, from 0: a lost or doubled frame is seen
  uint32_t stream = 0;
  uint32_t sequence = 0;
  uint32_t bytes = 0;  // of payload
  uint32_t key = 0;
  uint64_t value = 0;
};
static_assert(sizeof(Frame) == 32 && std::is_trivially_copyable_v<Frame>);

struct CtsFrame {
  uint64_t from;  // bytes of an offered message that have been copied: the rest is to be sent
};
struct SignalFrame {
  uint64_t amount;
  uint64_t after;  // bytes of puts since the signal or flush before
  uint8_t op;
  uint8_t spare[7];
};
struct GetFrame {
  uint64_t bytes;
};
struct FlushFrame {
  uint64_t after;
};

// Payload over this is no frame of ours, whatever the header says.
inline constexpr uint32_t kMaxPayload = 1u << 20;

// nullptr if the header can be one of ours, else what is wrong with it: an unknown kind, a payload
// over `max_payload` or of the wrong size for its kind, a lane >= `lanes`.
TC_API const char* frame_error(const Frame& frame, uint32_t max_payload, unsigned lanes) noexcept;

}  // namespace torch::comms::transport
