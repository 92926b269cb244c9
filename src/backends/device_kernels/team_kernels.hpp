#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/device_kernels/window_lifetime.hpp"
#include "backends/nccl/streams/collective_kernels.hpp"
#include "ctran/team/device_team.hpp"
#include "ctran/team/device_window.hpp"

namespace torch::comms::ctran {

// A team as the lane of a communicator has it.
class TeamKernels final : public nccl::CollectiveKernels {
 public:
  // What the members hear of each other beside the kernels; empty where they do not.
  struct PeerEvents {
    std::function<std::optional<CommError>(const Context&)>
        find_failed_peer;                      // see CollectiveKernels
    std::function<uint32_t()> quiesced_ranks;  // ranks, a bit each, as Team::note_gone() has them
  };
  explicit TeamKernels(std::shared_ptr<DeviceTeam> team, PeerEvents heard = {})
      : team_(std::move(team)), peer_events_(std::move(heard)) {}
  ~TeamKernels() override { team_->enable_zero_copy_send({}); }

  const DeviceTeam& team() const noexcept { return *team_; }
  // See Team.
  std::string allocate_rest(const std::function<void()>& look) {
    return team_->allocate_rest(look);
  }
  const std::shared_ptr<DeviceTeam>& shared_team() const noexcept { return team_; }
  // Whatever launches may use until the communicator has ended; windows for a shorter time. Of the
  // thread that calls operations.
  void retain(std::shared_ptr<const void> it) { retained_.push_back(std::move(it)); }
  WindowLifetimes& windows() noexcept { return windows_; }
  // Windows that are open, which collectives may have their outputs in. The first one in
  // which the bytes are; null: none. Of the thread that calls operations.
  void add_open_window(std::shared_ptr<const DeviceWindow> window) {
    open_windows_.push_back(std::move(window));
  }
  void remove_open_window(const std::shared_ptr<const DeviceWindow>& window) {
    std::erase(open_windows_, window);
  }
  const DeviceWindow* find_window_of(const void* at, size_t size_bytes) const noexcept;
  // This rank's memory `at` as `peer` maps it, where it is in one of them; else null.
  void* peer_address_of(int peer, const void* at, size_t size_bytes) const noexcept;
  // Of the team's messages from now on: whether they are written to windows straight.
  void set_zero_copy_send(bool wished);
  // Of the thread that calls operations.
  void launch(const kernels::KernelCall& call, gpu::NativeStream stream) {
    team_->launch(call, stream);
    count_launch();
  }
  void launch(const kernels::WindowCollectiveCall& call, gpu::NativeStream stream) {
    team_->launch(call, stream);
    count_launch();
  }
  void launch(const kernels::AllToAllVDynamic& exchange, gpu::NativeStream stream) {
    team_->exchange(exchange, stream);
    count_launch();
  }
  void launch(const kernels::QuantizedReduceScatter& call, gpu::NativeStream stream) {
    team_->reduce_scatter(call, stream);
    count_launch();
  }
  // Of launches that have none of their own. Any thread.
  void set_timeout_ns(uint64_t limit_ns) noexcept { team_->set_timeout(limit_ns); }
  uint64_t launches() const noexcept { return launches_.load(std::memory_order_relaxed); }

  std::optional<CommError> failure(const Context& context) const override;
  bool has_mismatch() const noexcept override;
  std::optional<CommError> find_failed_peer(const Context& context) override;
  void set_warning(const CommError& why) override;
  void abort(const CommError&) noexcept override { team_->abort(); }

 private:
  bool is_quiesced(int rank) const;
  void count_launch() noexcept { launches_.fetch_add(1, std::memory_order_relaxed); }

  const std::shared_ptr<DeviceTeam> team_;
  const PeerEvents peer_events_;
  mutable std::mutex mutex_;          // guards warned_
  std::optional<CommError> warning_;  // the first warning
  std::atomic<uint64_t> launches_{0};
  std::vector<std::shared_ptr<const void>> retained_;
  WindowLifetimes windows_;
  std::vector<std::shared_ptr<const DeviceWindow>> open_windows_;
};

}  // namespace torch::comms::ctran
