#pragma once

namespace torch::comms::transport::shm {

// Fences for other processes: who looks seldom pays, and who writes often does not [asymmetric
// Dekker synchronisation: Dice, Huang & Yang, 2001; membarrier(2)].
//
// True: fence_peers() works from here on, in this process. Asked once; any thread.
bool can_fence_peers() noexcept;
// Every process that asked the above passes a full fence before this returns, and so does the
// caller. Costs microseconds. Without can_fence_peers(): the caller alone.
void fence_peers() noexcept;

}  // namespace torch::comms::transport::shm
