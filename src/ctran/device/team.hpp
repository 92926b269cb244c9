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

#include "ctran/device/growth.hpp"
#include "ctran/device/kernel_library.hpp"
#include "ctran/device/side_stream.hpp"
#include "ctran/device/teams_of_device.hpp"
#include "ctran/kernels/layout.hpp"
#include "transport/nvl/symmetric_memory.hpp"

namespace torch::comms::ctran {

// Why the kernels of a team have stopped.
struct Stopped {
  kernels::StopReason reason;
  kernels::Collective collective;
  int waited_for;   // a rank; -1: nobody
  uint64_t launch;  // of how many
};

// What that is as an error at `where`, whose ranks are those of its readers; its peer: whom the
// kernels waited for, -1: nobody. `kernels`: which ones, such as "the kernel"; `launch`: what is
// said of it at the end, if anything.
CommError error_of(const Stopped& stopped, const Context& where, const std::string& kernels,
                   const std::string& launch = {});

// The ranks of one communicator whose devices run collectives and messages by kernels of ours, over
// memory that all of them map. A rank alone has one for what is beside collectives and messages.
//
// Threads: run_loop(), exchange() one at a time; abort(), set_limit(), stopped(): any.
class Team {
 public:
  using PinnedControl =
      std::unique_ptr<kernels::KernelControl, std::function<void(kernels::KernelControl*)>>;
  // Either all ranks have one, or none.
  struct Outcome {
    std::unique_ptr<Team> team;
    std::string why_not;  // the same on all ranks
  };
  // How much of a workspace it has at once. On all ranks the first part, if one asks for that.
  // kDefault: kComplete of the first team that this process has on the device, kFirstPart of
  // others.
  enum class Room : uint8_t { kWhole, kFirstPart, kUsual };
  // Collective; see nvl::SymmetricMemory. `unwilling`: why this rank wants none; "" where it does.
  // The device is current. Throws what `exchange` does.
  static Outcome make(int rank, int size, int device,
                      const std::shared_ptr<const gpu::Runtime>& runtime, std::string unwilling,
                      const transport::nvl::AllGatherStrings& exchange, Room room = Room::kWhole);
  // Nothing that was launched may run any more.
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // This rank's device, and how it is reached.
  const transport::nvl::RankContext& seat() const noexcept { return seat_; }
  int rank() const noexcept { return team_.rank; }
  int size() const noexcept { return team_.size; }
  // Bytes on this rank's device, that there are now. Any thread.
  size_t workspace_bytes() const noexcept {
    return workspace_bytes_.load(std::memory_order_relaxed);
  }

  // Whether a launch needs the rest of the workspace, and that is not there: then make_space()
  // comes before it. Of a launch that the team takes; alike on all ranks.
  bool lacks_room(const kernels::KernelCall& call) const noexcept {
    return !has_room() && library_.functions->needs_full_workspace(team_.size, call);
  }
  bool lacks_room(const kernels::WindowCollectiveCall& call) const noexcept;
  bool lacks_room(const kernels::QuantizedReduceScatter&) const noexcept { return !has_room(); }
  // Of a thread that launches, on each rank before the same launch, at any time: the rest of the
  // workspace comes. "", or why it does not, the same on all ranks. Waits for no launch of another
  // rank. Throws as Growth::prepare(), and CommError(kAborted) after abort().
  std::string make_room(const std::function<void()>& look);
  std::string architectures() const { return library_.functions->architectures(); }
  const std::string& library_path() const noexcept { return library_.path; }
  // For kernels that run beside the team's: whether those have stopped.
  const kernels::KernelControl* control() const noexcept { return control_.get(); }
  // The same on the device: what every workspace begins with.
  kernels::WorkspaceHeader& header(int rank) const noexcept {
    return *static_cast<kernels::WorkspaceHeader*>(memory_->at(rank));
  }

  // Alike on all ranks.
  bool takes(const kernels::KernelCall& call) const noexcept;
  // What kAutomatic is for it, and `blocks` then.
  kernels::KernelAlgorithm choice(const kernels::KernelCall& call, int32_t& blocks) const noexcept;

  // Enqueues it, also into a capture. All ranks launch the same calls in the same order. Throws
  // CommError(kVendor).
  void launch(const kernels::KernelCall& call, gpu::NativeStream stream);

  // Whether run_loop() of it on a region does what run_loop() of it alone does. Alike on all ranks.
  bool takes_on_region(const kernels::KernelCall& call) const noexcept;
  // The same by kernels that write the peers' outputs themselves. What it has as side is the
  // team's.
  void launch(kernels::WindowCollectiveCall call, gpu::NativeStream stream);
  // What all ranks call the next one of their regions; to be asked for by all, in the same order.
  uint32_t next_region() noexcept { return regions_++; }

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
  using Place = std::function<void*(int peer, const void* at, size_t size_bytes)>;
  static constexpr size_t kLeastStraight = size_t{8} << 20;
  void write_straight(Place place) noexcept { place_ = std::move(place); }

  // Enqueues one step beside a window, also into a capture. Throws CommError(kVendor).
  void step(const kernels::KernelRmaOperation& step, gpu::NativeStream stream);
  // Enqueue them, also into a capture, as run_loop() does. Throw CommError(kVendor).
  void exchange(const kernels::AllToAllVDynamic& exchange, gpu::NativeStream stream);
  void reduce_scatter(const kernels::QuantizedReduceScatter& call, gpu::NativeStream stream);

  // What kControlTimeout stands for from now on, in what runs and in replays, too. 0: no limit.
  void set_limit(uint64_t limit_ns) noexcept;
  // Nothing while all is well. Looks at host memory alone.
  std::optional<Stopped> stopped() const noexcept;
  // Ends what runs, and what is launched later, on this rank.
  void abort() noexcept;
  // These ranks, a bit each, have ended whatever they will ever launch: kernels that wait for more
  // of them end, now and later. Any thread.
  void note_gone(uint32_t ranks) noexcept;
  // It is no communicator's any more, so another one of the device is the first; see Room.
  void leave_device() noexcept { one_of_device_.leave(); }

 private:
  void check(int code) const;
  bool has_room() const noexcept { return team_.is_partial == 0; }  // the whole workspace is there
  void have_room(bool has) noexcept;
  void make_side();
  // With what write_straight() asks for.
  std::vector<kernels::KernelMessage> marked(
      std::span<const kernels::KernelMessage> messages) const;
  Team(KernelLibrary library, transport::nvl::RankContext seat,
       std::unique_ptr<transport::nvl::SymmetricMemory> memory, std::unique_ptr<Growth> growth,
       PinnedControl control);

  const KernelLibrary library_;
  const transport::nvl::RankContext seat_;
  OneOfDevice one_of_device_;
  const std::unique_ptr<transport::nvl::SymmetricMemory> memory_;
  const std::unique_ptr<Growth> growth_;  // null where the workspace was whole at once
  const PinnedControl control_;
  kernels::TeamDescriptor team_{};
  std::optional<SideStream> side_;  // from the first launch on that has a use for it
  bool has_no_side_ = false;        // it could not be made: launches do without
  std::atomic<size_t> workspace_bytes_ = 0;
  uint32_t regions_ = 0;
  Place place_;
};

}  // namespace torch::comms::ctran
