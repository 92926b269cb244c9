#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "ctran/kernels/protocol/layout.hpp"
#include "ctran/team/deferred_workspace.hpp"
#include "ctran/team/kernel_library.hpp"
#include "ctran/team/side_stream.hpp"
#include "ctran/team/team_count.hpp"
#include "transport/nvl/symmetric_memory.hpp"

namespace torch::comms::ctran {

// Why the kernels of a team have stopped.
struct KernelFailure {
  kernels::StopReason reason;
  kernels::Collective collective;
  int waited_for;   // a rank; -1: none
  uint64_t launch;  // number of the launch, see KernelControl::launch
};

// Converts a failure to an error. `where`: its context, with ranks as its readers number them; its
// peer is the rank that the kernels waited for, or -1. `kernels`: which kernels stopped, such as
// "the kernel". `launch`: text about the launch that is appended, or "".
CommError to_error(const KernelFailure& stopped, const Context& where, const std::string& kernels,
                   const std::string& launch = {});

// The ranks of one communicator whose devices run collectives and messages by kernels of this
// project, over memory that all of them map. A single rank has a team for operations on windows.
//
// Threads: launch(), exchange() one at a time; abort(), set_timeout(), failure(): any.
class DeviceTeam {
 public:
  using PinnedControl =
      std::unique_ptr<kernels::KernelControl, std::function<void(kernels::KernelControl*)>>;
  // The result of create(): either all ranks have a team, or none.
  struct DeviceTeamResult {
    std::unique_ptr<DeviceTeam> team;
    std::string unavailable_reason;  // the same on all ranks
  };
  // How much of a workspace is allocated at creation. All ranks allocate only the first part if one
  // of them asks for that. kDefault: kFull for the first team that this process has on the device,
  // kPartial for others.
  enum class WorkspaceExtent : uint8_t { kFull, kPartial, kDefault };
  // Collective; see nvl::SymmetricMemory. `decline_reason`: why this rank wants no team; "" if it
  // wants one. The device is current.
  // Throws: what `exchange` throws.
  static DeviceTeamResult create(int rank, int size, int device,
                                 const std::shared_ptr<const gpu::Runtime>& runtime,
                                 std::string decline_reason,
                                 const transport::nvl::AllGatherStrings& exchange,
                                 WorkspaceExtent extent = WorkspaceExtent::kFull);
  // Lifetime: no launch of the team may still be running.
  ~DeviceTeam();
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;

  // This rank's device, and how it is accessed.
  const transport::nvl::RankContext& rank_context() const noexcept { return rank_context_; }
  int rank() const noexcept { return descriptor_.rank; }
  int size() const noexcept { return descriptor_.size; }
  // Bytes of the workspace on this rank's device that are allocated now.
  // Threads: any.
  size_t workspace_bytes() const noexcept {
    return workspace_bytes_.load(std::memory_order_relaxed);
  }

  // Whether a launch needs the rest of the workspace and the rest is not allocated. allocate_rest()
  // must then come before the launch. For launches that the team accepts; equal on all ranks.
  bool needs_full_workspace(const kernels::KernelCall& call) const noexcept {
    return !has_full_workspace() &&
           library_.functions->needs_full_workspace(descriptor_.size, call);
  }
  bool needs_full_workspace(const kernels::WindowCollectiveCall& call) const noexcept;
  bool needs_full_workspace(const kernels::QuantizedReduceScatter&) const noexcept {
    return !has_full_workspace();
  }
  // Allocates the rest of the workspace. Every rank calls it before the same launch, on a thread
  // that launches. Waits for no launch of another rank. `interrupt_check`: as in
  // DeferredWorkspace::allocate_collectively().
  // Returns: "", or why the rest is unavailable, the same text on all ranks.
  // Throws: as DeferredWorkspace::allocate_collectively(), and CommError(kAborted) after abort().
  std::string allocate_rest(const std::function<void()>& interrupt_check);
  std::string architectures() const { return library_.functions->architectures(); }
  const std::string& library_path() const noexcept { return library_.path; }
  // Shows kernels that run in parallel with the team's kernels whether these have stopped.
  const kernels::KernelControl* control() const noexcept { return control_.get(); }
  // Returns the header of a rank's workspace, in device memory.
  kernels::WorkspaceHeader& header(int rank) const noexcept {
    return *static_cast<kernels::WorkspaceHeader*>(memory_->at(rank));
  }

  // Whether launch() accepts the call; equal on all ranks.
  bool can_launch(const kernels::KernelCall& call) const noexcept;
  // Returns what kAutomatic stands for in this call, and sets its `blocks`.
  kernels::KernelAlgorithm choose_algorithm(const kernels::KernelCall& call,
                                            int32_t& blocks) const noexcept;

  // Enqueues a collective, also into a capture. All ranks launch the same calls in the same order.
  // Throws: CommError(kVendor).
  void launch(const kernels::KernelCall& call, gpu::NativeStream stream);

  // Whether the call may also be launched as a window collective, with the same result. Equal on
  // all ranks.
  bool can_launch_on_window(const kernels::KernelCall& call) const noexcept;
  // Enqueues a window collective, whose kernels write the peers' outputs directly. The team sets
  // its side stream.
  void launch(kernels::WindowCollectiveCall call, gpu::NativeStream stream);
  // Returns the number that all ranks give to the next window. All ranks call it in the same order.
  uint32_t next_window_id() noexcept { return window_ids_++; }

  // Enqueues any number of messages, also into a capture. They are one launch, or several if one
  // peer and direction has more than messages_per_batch(size()) messages (message_batches.hpp).
  // Ranks without messages take no part. For a pair with more messages than that, both sides give
  // the same messages in one call each; shorter lists may be divided into calls as each side wants.
  // Throws: CommError(kInvalidArgument) before any launch, for a message without memory or whose
  // peer is this rank or no rank of the team; CommError(kVendor).
  void exchange(std::span<const kernels::KernelMessage> messages, uint64_t limit_ns,
                gpu::NativeStream stream);

  // From now on messages of kZeroCopyMinBytes or more use zero-copy if the peer wants it, too.
  // Sends request it. Receives offer the address that `place` returns: the same memory as the peer
  // maps it, or null. An empty `place` turns both off. Ranks need not agree.
  using PeerAddress = std::function<void*(int peer, const void* at, size_t size_bytes)>;
  static constexpr size_t kZeroCopyMinBytes = size_t{8} << 20;
  void enable_zero_copy_send(PeerAddress place) noexcept { peer_address_ = std::move(place); }

  // Enqueues one operation on a window, also into a capture.
  // Throws: CommError(kVendor).
  void run_rma(const kernels::KernelRmaOperation& step, gpu::NativeStream stream);
  // Enqueue these collectives, also into a capture, as launch() does.
  // Throws: CommError(kVendor).
  void exchange(const kernels::AllToAllVDynamic& exchange, gpu::NativeStream stream);
  void reduce_scatter(const kernels::QuantizedReduceScatter& call, gpu::NativeStream stream);

  // Sets what kControlTimeout stands for from now on, also for running launches and replays. 0:
  // none.
  void set_timeout(uint64_t limit_ns) noexcept;
  // Returns why the kernels have stopped; nothing while they have not. Reads only host memory.
  std::optional<KernelFailure> failure() const noexcept;
  // Stops the running and all later launches of this rank.
  void abort() noexcept;
  // Marks ranks, as a bit mask, that have ended all that they will ever launch. Kernels that wait
  // for more of their data stop, now and later.
  // Threads: any.
  void mark_quiesced(uint32_t ranks) noexcept;
  // Stops counting this team among the teams of its device, because no communicator uses it any
  // more. The next team of the device may then be the first; see WorkspaceExtent.
  void release_device() noexcept { team_count_.release(); }

 private:
  void check(int code) const;
  bool has_full_workspace() const noexcept { return descriptor_.is_partial == 0; }
  void set_full_workspace(bool has) noexcept;
  void create_side_stream();
  // Sets the fields for which enable_zero_copy_send() asks.
  std::vector<kernels::KernelMessage> mark_zero_copy(
      std::span<const kernels::KernelMessage> messages) const;
  DeviceTeam(KernelLibrary library, transport::nvl::RankContext context,
             std::unique_ptr<transport::nvl::SymmetricMemory> memory,
             std::unique_ptr<DeferredWorkspace> deferred_workspace, PinnedControl control);

  const KernelLibrary library_;
  const transport::nvl::RankContext rank_context_;
  DeviceTeamCount team_count_;
  const std::unique_ptr<transport::nvl::SymmetricMemory> memory_;
  const std::unique_ptr<DeferredWorkspace>
      deferred_workspace_;  // null if the whole workspace was allocated at creation
  const PinnedControl control_;
  kernels::TeamDescriptor descriptor_{};
  std::optional<SideStream> side_stream_;  // created by the first launch that needs it
  bool has_side_stream_failed_ = false;    // it could not be created; launches do without it
  std::atomic<size_t> workspace_bytes_ = 0;
  uint32_t window_ids_ = 0;
  PeerAddress peer_address_;
};

}  // namespace torch::comms::ctran
