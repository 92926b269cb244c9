#pragma once

#include <cstdint>

// Where links change their ways by the size of a message, in bytes. The choice of algorithms
// reckons with it.
namespace torch::comms::transport {

// Between processes of a host, unless the options say other: up to this size a message leaves
// before its receive is there. Larger ones are copied by their receiver, out of the sender's
// memory.
inline constexpr uint64_t kMaxEagerBytes = 8u << 10;
// Up to this size, and half of it where they go one way, they leave at once, too, where that takes
// less time here: EagerThresholdTuner.
inline constexpr uint64_t kMaxInlineEagerBytes = 128u << 10;
// The same, both ways and one, where ranks take turns on their cores and share the caches there.
// Measured with four ranks on two cores of a Xeon: an all_to_all of 64 KB to each takes 37 us where
// the receivers copy it, and 38 to 72 where it leaves at once, of 32 KB 24 and 30; of 16 KB 18
// and 16.
inline constexpr uint64_t kMaxInlineEagerBytesOversubscribed = 16u << 10;

// Beyond that they are copied by their receiver, or move through the channel, whose two ends copy
// at the same time, each on its core: whatever takes less here, CopyPathTuner. It begins with the
// channel for what is larger than this and goes one way, or where ranks take turns. Measured with
// two ranks on two cores, as speeds relative to OpenOperation MPI's: a broadcast of 16 MB is at
// 0.91 where its receiver copies it, at 1.50 where both do. Where both sides have something to
// receive, both cores copy anyway, and one copy is less than two: of 8 MB each way, 0.9 ms
// against 1.3 ms.
inline constexpr uint64_t kMaxInitialRemoteReadBytes = 4u << 20;

}  // namespace torch::comms::transport
