#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <torchcomms/operation.hpp>
#include <torchcomms/work.hpp>

// Callbacks around every operation. They run on the calling thread, in order of registration; an
// exception of a pre- or post-hook leaves the call with its own type and skips the hooks after it.
namespace torch::comms {

class TorchComm;
class TorchCommWindow;

// A pre-hook sees the operation itself; its references are valid during the call.
using PreHookArgs = Operation;

using SendPreHookArgs = Send;
using RecvPreHookArgs = Recv;
using BroadcastPreHookArgs = Broadcast;
using AllReducePreHookArgs = AllReduce;
using ReducePreHookArgs = Reduce;
using AllGatherPreHookArgs = AllGather;
using AllGatherVPreHookArgs = AllGatherV;
using AllGatherSinglePreHookArgs = AllGatherSingle;
using ReduceScatterPreHookArgs = ReduceScatter;
using ReduceScatterVPreHookArgs = ReduceScatterV;
using ReduceScatterSinglePreHookArgs = ReduceScatterSingle;
using AllToAllSinglePreHookArgs = AllToAllSingle;
using AllToAllVSinglePreHookArgs = AllToAllVSingle;
using AllToAllPreHookArgs = AllToAll;
using BarrierPreHookArgs = Barrier;
using ScatterPreHookArgs = Scatter;
using GatherPreHookArgs = Gather;
using GatherSinglePreHookArgs = GatherSingle;
using SplitPreHookArgs = Split;
using NewWindowPreHookArgs = NewWindow;
using BatchOpIssuePreHookArgs = BatchOpIssue;
using FinalizePreHookArgs = Finalize;

// A post-hook sees what came out, weakly: it must not prolong a work's life.
struct CollectivePostHookArgs {
  c10::weak_intrusive_ptr<TorchWork> work;
};
struct BatchOpIssuePostHookArgs {
  c10::weak_intrusive_ptr<TorchWork> work;
};
struct SplitPostHookArgs {
  std::weak_ptr<TorchComm> new_comm;
};
struct NewWindowPostHookArgs {
  std::weak_ptr<TorchCommWindow> new_window;
};
struct FinalizePostHookArgs {};
using PostHookArgs = std::variant<CollectivePostHookArgs, SplitPostHookArgs, NewWindowPostHookArgs,
                                  BatchOpIssuePostHookArgs, FinalizePostHookArgs>;

using PreHook = std::function<void(size_t op_id, const PreHookArgs& args)>;
using PostHook = std::function<void(size_t op_id, const PostHookArgs& args)>;
// Why an operation whose pre-hooks were called has no post-hooks.
enum class Unposted : uint8_t {
  kRefused,  // a pre-hook raised, and nothing was sent
  kRaised,   // what came after the pre-hooks did
  kLeft,     // a split that this rank is in no group of
};
// Must not throw. May hear of operations whose own pre-hook was not called: one before it refused.
using UnpostedHook = std::function<void(size_t op_id, Unposted why)>;
using AbortHook = std::function<void()>;
// `event`: "S", "E". `index` and `replay_id` begin at 0. By looks: see docs/concepts/timeouts.md.
using GraphReplayHook = std::function<void(uint64_t graph_id, uint64_t replay_id, uint64_t stream,
                                           uint64_t index, std::string_view event)>;

// Takes a registration back. Idempotent; destruction alone leaves the hook registered; safe after
// the communicator is gone.
class TC_API RemovableHandle {
 public:
  static std::unique_ptr<RemovableHandle> create(std::function<void()> remove);
  void remove();

 private:
  explicit RemovableHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  std::function<void()> remove_;
};

// finalize() takes no operation id; its hooks see this one.
inline constexpr size_t kFinalizeOpId = static_cast<size_t>(-1);

}  // namespace torch::comms
