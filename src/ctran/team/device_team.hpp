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
  int waited_for;   // a rank; -1: nobody
  uint64_t launch;  // of how many
};

// What that is as an error at `where`, whose ranks are those of its readers; its peer: whom the
// kernels waited for, -1: nobody. `kernels`: which ones, such as "the kernel"; `launch`: what is
// said of it at the end, if anything.
CommError to_error(const KernelFailure& stopped, const Context& where, const std::string& kernels,
                   const std::string& launch = {});

// The ranks of one communicator whose devices run collectives and messages by kernels of ours, over
// memory that all of them map. A rank alone has one for what is beside collectives and messages.
//
// Threads: run_loop(), exchange() one at a time; abort(), set_timeout(), failure(): any.
class DeviceTeam {
 public:
  using PinnedControl =
      std::unique_ptr<kernels::KernelControl, std::function<void(kernels::KernelControl*)>>;
  // Either all ranks have one, or none.
  struct DeviceTeamResult {
    std::unique_ptr<DeviceTeam> team;
    std::string unavailable_reason;  // the same on all ranks
  };
  // How much of a workspace it has at once. On all ranks the first part, if one asks for that.
  // kDefault: kFull of the first team that this process has on the device, kPartial of others.
  enum class WorkspaceExtent : uint8_t { kFull, kPartial, kDefault };
  // Collective; see nvl::SymmetricMemory. `unwilling`: why this rank wants none; "" where it does.
  // The device is current. Throws what `exchange` does.
  static DeviceTeamResult create(int rank, int size, int device,
                                 const std::shared_ptr<const gpu::Runtime>& runtime,
                                 std::string unwilling,
                                 const transport::nvl::AllGatherStrings& exchange,
                                 WorkspaceExtent room = WorkspaceExtent::kFull);
  // Nothing that was launched may run any more.
  ~DeviceTeam();
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;

  // This rank's device, and how it is reached.
  const transport::nvl::RankContext& rank_context() const noexcept { return rank_context_; }
  int rank() const noexcept { return descriptor_.rank; }
  int size() const noexcept { return descriptor_.size; }
  // Bytes on this rank's device, that there are now. Any thread.
  size_t workspace_bytes() const noexcept {
    return workspace_bytes_.load(std::memory_order_relaxed);
  }

  // Whether a launch needs the rest of the workspace, and that is not there: then allocate_rest()
  // comes before it. Of a launch that the team takes; alike on all ranks.
  bool needs_full_workspace(const kernels::KernelCall& call) const noexcept {
    return !has_full_workspace() &&
           library_.functions->needs_full_workspace(descriptor_.size, call);
  }
  bool needs_full_workspace(const kernels::WindowCollectiveCall& call) const noexcept;
  bool needs_full_workspace(const kernels::QuantizedReduceScatter&) const noexcept {
    return !has_full_workspace();
  }
  // Of a thread that launches, on each rank before the same launch, at any time: the rest of the
  // workspace comes. "", or why it does not, the same on all ranks. Waits for no launch of another
  // rank. Throws as DeferredWorkspace::allocate_collectively(), and CommError(kAborted) after
  // abort().
  std::string allocate_rest(const std::function<void()>& look);
  std::string architectures() const { return library_.functions->architectures(); }
  const std::string& library_path() const noexcept { return library_.path; }
  // For kernels that run beside the team's: whether those have stopped.
  const kernels::KernelControl* control() const noexcept { return control_.get(); }
  // The same on the device: what every workspace begins with.
  kernels::WorkspaceHeader& header(int rank) const noexcept {
    return *static_cast<kernels::WorkspaceHeader*>(memory_->at(rank));
  }

  // Alike on all ranks.
  bool can_launch(const kernels::KernelCall& call) const noexcept;
  // What kAutomatic is for it, and `blocks` then.
  kernels::KernelAlgorithm choose_algorithm(const kernels::KernelCall& call,
                                            int32_t& blocks) const noexcept;

  // Enqueues it, also into a capture. All ranks launch the same calls in the same order. Throws
  // CommError(kVendor).
  void launch(const kernels::KernelCall& call, gpu::NativeStream stream);

  // Whether run_loop() of it on a region does what run_loop() of it alone does. Alike on all ranks.
  bool can_launch_on_window(const kernels::KernelCall& call) const noexcept;
  // The same by kernels that write the peers' outputs themselves. What it has as side is the
  // team's.
  void launch(kernels::WindowCollectiveCall call, gpu::NativeStream stream);
  // What all ranks call the next one of their regions; to be asked for by all, in the same order.
  uint32_t next_window_id() noexcept { return window_ids_++; }

  // Enqueues any number of messages, also into a capture: in one launch, or where one rank and
  // direction has more than messages_of_round(size()) (rounds.hpp) in several. Other ranks have no
  // part in it. Both sides of a pair that has so many give the same of them in one call each;
  // shorter lists may be divided into calls as each likes. Throws CommError(kInvalidArgument) for a
  // message with no rank of the team or with this one, or without memory, before anything is
  // launched; else CommError(kVendor).
  void exchange(std::span<const kernels::KernelMessage> messages, uint64_t limit_ns,
                gpu::NativeStream stream);

  // From now on messages of so many bytes are written straight to where they are wanted, if the
  // other side likes it, too: sends ask, and a receive has the place that `place` says, which is
  // the same memory as the peer maps it, or null. Empty: neither. Ranks need not agree.
  using PeerAddress = std::function<void*(int peer, const void* at, size_t size_bytes)>;
  static constexpr size_t kZeroCopyMinBytes = size_t{8} << 20;
  void enable_zero_copy_send(PeerAddress place) noexcept { peer_address_ = std::move(place); }

  // Enqueues one step beside a window, also into a capture. Throws CommError(kVendor).
  void run_rma(const kernels::KernelRmaOperation& step, gpu::NativeStream stream);
  // Enqueue them, also into a capture, as run_loop() does. Throw CommError(kVendor).
  void exchange(const kernels::AllToAllVDynamic& exchange, gpu::NativeStream stream);
  void reduce_scatter(const kernels::QuantizedReduceScatter& call, gpu::NativeStream stream);

  // What kControlTimeout stands for from now on, in what runs and in replays, too. 0: no limit.
  void set_timeout(uint64_t limit_ns) noexcept;
  // Nothing while all is well. Looks at host memory alone.
  std::optional<KernelFailure> failure() const noexcept;
  // Ends what runs, and what is launched later, on this rank.
  void abort() noexcept;
  // These ranks, a bit each, have ended whatever they will ever launch: kernels that wait for more
  // of them end, now and later. Any thread.
  void mark_quiesced(uint32_t ranks) noexcept;
  // It is no communicator's any more, so another one of the device is the first; see
  // WorkspaceExtent.
  void release_device() noexcept { team_count_.release(); }

 private:
  void check(int code) const;
  bool has_full_workspace() const noexcept {
    return descriptor_.is_partial == 0;
  }  // the whole workspace is there
  void set_full_workspace(bool has) noexcept;
  void create_side_stream();
  // With what enable_zero_copy_send() asks for.
  std::vector<kernels::KernelMessage> mark_zero_copy(
      std::span<const kernels::KernelMessage> messages) const;
  DeviceTeam(KernelLibrary library, transport::nvl::RankContext seat,
             std::unique_ptr<transport::nvl::SymmetricMemory> memory,
             std::unique_ptr<DeferredWorkspace> growth, PinnedControl control);

  const KernelLibrary library_;
  const transport::nvl::RankContext rank_context_;
  DeviceTeamCount team_count_;
  const std::unique_ptr<transport::nvl::SymmetricMemory> memory_;
  const std::unique_ptr<DeferredWorkspace>
      deferred_workspace_;  // null where the workspace was whole at once
  const PinnedControl control_;
  kernels::TeamDescriptor descriptor_{};
  std::optional<SideStream> side_stream_;  // from the first launch on that has a use for it
  bool has_side_stream_failed_ = false;    // it could not be made: launches do without
  std::atomic<size_t> workspace_bytes_ = 0;
  uint32_t window_ids_ = 0;
  PeerAddress peer_address_;
};

}  // namespace torch::comms::ctran
