#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/kernels/kept_windows.hpp"
#include "backends/nccl/collective_kernels.hpp"
#include "ctran/device/device_team.hpp"
#include "ctran/device/device_window.hpp"

namespace torch::comms::ctran {

// A team as the lane of a communicator has it.
class TeamKernels final : public nccl::CollectiveKernels {
 public:
  // What the members hear of each other beside the kernels; empty where they do not.
  struct Heard {
    std::function<std::optional<CommError>(const Context&)> lost;  // see CollectiveKernels
    std::function<uint32_t()> at_rest;  // ranks, a bit each, as Team::note_gone() has them
  };
  explicit TeamKernels(std::shared_ptr<DeviceTeam> team, Heard heard = {})
      : team_(std::move(team)), heard_(std::move(heard)) {}
  ~TeamKernels() override { team_->enable_zero_copy_send({}); }

  const DeviceTeam& team() const noexcept { return *team_; }
  // See Team.
  std::string make_room(const std::function<void()>& look) { return team_->allocate_rest(look); }
  const std::shared_ptr<DeviceTeam>& shared_team() const noexcept { return team_; }
  // Whatever launches may use until the communicator has ended; windows for a shorter time. Of the
  // thread that calls operations.
  void keep(std::shared_ptr<const void> it) { kept_.push_back(std::move(it)); }
  KeptWindows& windows() noexcept { return windows_; }
  // Windows that are open, which collectives may have their outputs in. The first one in
  // which the bytes are; null: none. Of the thread that calls operations.
  void add_region(std::shared_ptr<const DeviceWindow> window) {
    regions_.push_back(std::move(window));
  }
  void remove_region(const std::shared_ptr<const DeviceWindow>& window) {
    std::erase(regions_, window);
  }
  const DeviceWindow* region_of(const void* at, size_t size_bytes) const noexcept;
  // This rank's memory `at` as `peer` maps it, where it is in one of them; else null.
  void* place_of(int peer, const void* at, size_t size_bytes) const noexcept;
  // Of the team's messages from now on: whether they are written to windows straight.
  void write_straight(bool wished);
  // Of the thread that calls operations.
  void launch(const kernels::KernelCall& call, gpu::NativeStream stream) {
    team_->launch(call, stream);
    count();
  }
  void launch(const kernels::WindowCollectiveCall& call, gpu::NativeStream stream) {
    team_->launch(call, stream);
    count();
  }
  void launch(const kernels::AllToAllVDynamic& exchange, gpu::NativeStream stream) {
    team_->exchange(exchange, stream);
    count();
  }
  void launch(const kernels::QuantizedReduceScatter& call, gpu::NativeStream stream) {
    team_->reduce_scatter(call, stream);
    count();
  }
  // Of launches that have none of their own. Any thread.
  void set_limit(uint64_t limit_ns) noexcept { team_->set_timeout(limit_ns); }
  uint64_t launches() const noexcept { return launches_.load(std::memory_order_relaxed); }

  std::optional<CommError> failure(const Context& context) const override;
  bool has_mismatch() const noexcept override;
  std::optional<CommError> find_failed_peer(const Context& context) override;
  void set_warning(const CommError& why) override;
  void abort(const CommError&) noexcept override { team_->abort(); }

 private:
  bool is_at_rest(int rank) const;
  void count() noexcept { launches_.fetch_add(1, std::memory_order_relaxed); }

  const std::shared_ptr<DeviceTeam> team_;
  const Heard heard_;
  mutable std::mutex mutex_;         // guards warned_
  std::optional<CommError> warned_;  // the first warning
  std::atomic<uint64_t> launches_{0};
  std::vector<std::shared_ptr<const void>> kept_;
  KeptWindows windows_;
  std::vector<std::shared_ptr<const DeviceWindow>> regions_;
};

}  // namespace torch::comms::ctran
