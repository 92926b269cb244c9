#pragma once

namespace torch::comms::transport::shm {

// Memory fences that this process makes other processes pass. A process that rarely reads pays for
// the fence, and a process that writes often does not [asymmetric Dekker synchronization: Dice,
// Huang & Yang, 2001; membarrier(2)].
//
// Registers this process for such fences with the first call.
// Returns: whether fence_peers() works in this process.
// Threads: any.
bool can_fence_peers() noexcept;
// Makes every process that called can_fence_peers() pass a full fence, and the caller, too. Costs
// microseconds. Without can_fence_peers() only the caller passes a fence.
void fence_peers() noexcept;

}  // namespace torch::comms::transport::shm
