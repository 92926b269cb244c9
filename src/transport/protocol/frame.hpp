#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <torchcomms/base/export.hpp>

namespace torch::comms::transport {

// Kinds of frames, with the header fields and the payload that each kind uses.
enum class FrameKind : uint8_t {
  // A whole eager message. Fields: stream, sequence, key = its tag.
  kEager = 1,
  // Ready to send: announces a message that waits for its CTS. Fields: stream, sequence, value =
  // its length, key = its tag. Payload: none, or a RemoteReadDescriptor.
  kRts,
  // Clear to send: the receive is posted. Fields: stream, sequence, value = its capacity, key = its
  // tag. Payload: none, or a CtsFrame.
  kCts,
  // The receive does not fit the message. Fields: stream, sequence, value = its capacity.
  kNack,
  // Part of a message that is clear to send. Fields: stream, sequence, value = offset in the
  // message.
  kData,
  // Returns credit: `value` bytes of eager messages have been taken.
  kCredit,
  // Data for region `stream` at offset `value`, with the region's key. Sequence: see below.
  kPut,
  // Changes the counter in region `stream` at offset `value`. Payload: SignalFrame.
  kSignal,
  // Asks for data of region `stream` at offset `value`. Fields: sequence. Payload: GetFrame.
  kGet,
  // Part of the answer to a kGet. Fields: sequence, value = offset in the answer.
  kGetReply,
  kGetNack,  // refuses a kGet; fields: sequence
  // Asks for an answer once all earlier puts have arrived. Fields: its own sequence. Payload:
  // FlushFrame.
  kFlush,
  // Answers a kFlush. Fields: sequence, value = operations refused since the last kFlushAck.
  kFlushAck,
  // `value` bytes of puts will not come, because their operation has ended. Sequence: as of kPut.
  kPutSkipped,
  // The receiver has read all of a message that was announced with a RemoteReadDescriptor. Fields:
  // stream, sequence.
  kReadDone,
};

// The sender counts its signals and flushes from 0. The sequence of a put is the number of the next
// signal or flush, which must take effect after the put.

// The header of a frame, sent as it lies in memory. Its numbers are untrusted until the peer's
// protocol has checked them.
struct Frame {
  FrameKind kind = FrameKind::kEager;
  uint8_t channel = 0;  // the connection's channel that carries the frame
  uint16_t spare = 0;   // 0
  // Number of the frame in its channel, from 0: a lost or duplicated frame is detected.
  uint32_t ordinal = 0;
  uint32_t stream = 0;
  uint32_t sequence = 0;
  uint32_t bytes = 0;  // of payload
  uint32_t key = 0;
  uint64_t value = 0;
};
static_assert(sizeof(Frame) == 32 && std::is_trivially_copyable_v<Frame>);

// The payloads of control frames, as they lie in memory.
struct CtsFrame {
  // Bytes of the announced message that the receiver has read; the sender sends the rest.
  uint64_t from;
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

// The largest payload of a frame in bytes, whatever the header says.
inline constexpr uint32_t kMaxPayload = 1u << 20;

// Checks a header.
// Returns: nullptr if it is valid, else what is wrong: an unknown kind, a channel >= `channels`, or
// a payload that is larger than `max_payload` or has the wrong size for its kind.
TC_API const char* frame_error(const Frame& frame, uint32_t max_payload,
                               unsigned channels) noexcept;

}  // namespace torch::comms::transport
