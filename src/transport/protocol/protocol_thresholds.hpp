#pragma once

#include <cstdint>

// Message sizes, in bytes, at which transports change the protocol. The choice of algorithms uses
// them, too.
namespace torch::comms::transport {

// Messages up to this size are eager between processes of a host, unless the options say otherwise.
// A larger message is copied by its receiver out of the sender's memory.
inline constexpr uint64_t kMaxEagerBytes = 8u << 10;
// Messages up to this size are eager, too, where that is faster (EagerThresholdTuner); half of this
// size where messages go one way.
inline constexpr uint64_t kMaxInlineEagerBytes = 128u << 10;
// The limit that replaces kMaxInlineEagerBytes, for both directions and one, where ranks share
// cores and their caches. Measured with four ranks on two cores of a Xeon: an all_to_all of 64 KB
// to each rank takes 37 us by remote read and 38 to 72 us with eager messages; of 32 KB 24 and 30
// us; of 16 KB 18 and 16 us.
inline constexpr uint64_t kMaxInlineEagerBytesOversubscribed = 16u << 10;

// Larger messages move by remote read or by copy-in/copy-out, whichever CopyPathTuner finds faster.
// It begins with copy-in/copy-out for messages over this size that go one way, and wherever ranks
// share cores. Measured with two ranks on two cores, as speeds relative to Open MPI's: a broadcast
// of 16 MB is at 0.91 by remote read and at 1.50 by copy-in/copy-out. Where both sides receive
// something, both cores copy anyway, and one copy is less than two: 8 MB each way take 0.9 ms by
// remote read and 1.3 ms by copy-in/copy-out.
inline constexpr uint64_t kMaxInitialRemoteReadBytes = 4u << 20;

}  // namespace torch::comms::transport
