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

// The kernels of a device team, as the LaunchQueue of a communicator uses them.
class TeamKernels final : public nccl::CollectiveKernels {
 public:
  // Events of peers from another source than the kernels; empty functions if there is none. The
  // functions may be called on any thread.
  struct PeerEvents {
    std::function<std::optional<CommError>(const Context&)>
        find_failed_peer;  // see CollectiveKernels
    std::function<uint32_t()>
        quiesced_ranks;  // bit mask of ranks, as for DeviceTeam::mark_quiesced()
  };
  explicit TeamKernels(std::shared_ptr<DeviceTeam> team, PeerEvents peer_events = {})
      : team_(std::move(team)), peer_events_(std::move(peer_events)) {}
  ~TeamKernels() override { team_->enable_zero_copy_send({}); }

  const DeviceTeam& team() const noexcept { return *team_; }
  // See DeviceTeam::allocate_rest(). Collective.
  std::string allocate_rest(const std::function<void()>& interrupt_check) {
    return team_->allocate_rest(interrupt_check);
  }
  const std::shared_ptr<DeviceTeam>& shared_team() const noexcept { return team_; }
  // Keeps an object that launches may use until the communicator has ended. Windows are kept for a
  // shorter time, in windows().
  // Threads: only the thread that calls operations.
  void retain(std::shared_ptr<const void> it) { retained_.push_back(std::move(it)); }
  WindowLifetimes& windows() noexcept { return windows_; }
  // The open windows, in which collectives may have their outputs. find_window_of() returns the
  // first one that contains the bytes; null: none.
  // Threads: only the thread that calls operations.
  void add_open_window(std::shared_ptr<const DeviceWindow> window) {
    open_windows_.push_back(std::move(window));
  }
  void remove_open_window(const std::shared_ptr<const DeviceWindow>& window) {
    std::erase(open_windows_, window);
  }
  const DeviceWindow* find_window_of(const void* at, size_t size_bytes) const noexcept;
  // Returns: the address at which `peer` maps this rank's memory `at`, if an open window contains
  // it; else null.
  void* peer_address_of(int peer, const void* at, size_t size_bytes) const noexcept;
  // Sets whether the team's messages use zero-copy from now on, with receives into open windows;
  // see DeviceTeam::enable_zero_copy_send().
  // Threads: only the thread that calls operations.
  void set_zero_copy_send(bool enabled);
  // Launch an operation on `stream`.
  // Throws: CommError(kVendor).
  // Threads: only the thread that calls operations.
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
  // Sets the timeout of launches that have none of their own, also of running launches and graph
  // replays. 0: none.
  // Threads: any.
  // Units: nanoseconds.
  void set_timeout_ns(uint64_t limit_ns) noexcept { team_->set_timeout(limit_ns); }
  // Returns: the number of operations launched so far, by the methods above.
  // Threads: any.
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
  mutable std::mutex mutex_;          // guards warning_
  std::optional<CommError> warning_;  // the first warning
  std::atomic<uint64_t> launches_{0};
  std::vector<std::shared_ptr<const void>> retained_;
  WindowLifetimes windows_;
  std::vector<std::shared_ptr<const DeviceWindow>> open_windows_;
};

}  // namespace torch::comms::ctran
