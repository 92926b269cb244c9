#include <algorithm>
#include <utility>

#include "backends/beside/peer_monitor.hpp"
#include "backends/nccl/call.hpp"
#include "backends/nccl/hints.hpp"
#include "backends/nccl/lane.hpp"
#include "backends/nccl/persistent.hpp"
#include "backends/nccl/vendor_backend.hpp"
#include "base/env.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "core/abort_hook_runner.hpp"
#include "core/deferred_teardown.hpp"
#include "core/error_context.hpp"
#include "core/interruptible_call.hpp"
#include "core/reconfiguration.hpp"

// How a rank leaves: finalize(), abort(), the end of the object.
namespace torch::comms {
namespace {

using nccl::Call;
using nccl::Clock;

constexpr const char* kTeardownVariable = "TORCHCOMM_TEARDOWN_TIMEOUT_SECONDS";
// How long finalize() waits for the graphs of a communicator that was captured.
constexpr std::chrono::seconds kGraphsMayGo{2};
// How often a blocked thread looks whether the user wants out (Ctrl-C).
constexpr std::chrono::milliseconds kLeavingTick{50};

}  // namespace

TorchCommVendor::~TorchCommVendor() {
  if (fork_generation_ != base::fork_generation()) {
    // Its threads, and the library's, exist in the parent alone.
    static_cast<void>(new std::shared_ptr<nccl::Lane>(std::move(lane_)));
    static_cast<void>(new auto(std::move(pairs_)));
    static_cast<void>(pair_store_.release());
    static_cast<void>(reconfiguration_.release());
    static_cast<void>(new at::Tensor(std::move(token_)));
    static_cast<void>(new auto(std::move(persistent_)));
    static_cast<void>(new auto(std::move(circle_)));
    return;
  }
  // The caller may hold locks that the library's threads want, such as Python's.
  // The others hear of it when what is under way has ended, and nothing holds the circle any more.
  release(detach(), /*may_block=*/false);
}

TorchCommVendor::Lanes TorchCommVendor::detach() {
  Lanes lanes;
  const std::lock_guard lock(mutex_);
  for (auto& [peer, lane] : std::exchange(pairs_, {})) lanes.push_back(std::move(lane));
  if (!lane_) return lanes;
  if (const auto failed = lane_->communicator().failure().reason()) failure_ = failed;
  lanes.push_back(std::exchange(lane_, nullptr));
  return lanes;
}

void TorchCommVendor::release(Lanes lanes, bool may_block) {
  for (auto& lane : lanes) {
    lane->replays().stop();  // else the watchdog would keep it
    const auto flight = lane->flight();
    // What is under way may end; then the library's communicator goes with its last owner.
    auto let_go = [lane = std::move(lane)]() mutable {
      lane->tell_of_end({Errc::kFinalized, "it dropped the communicator without finalize()"});
      lane.reset();
    };
    teardown_async(flight, std::move(let_go), may_block);
  }
}

void TorchCommVendor::finalize() {
  Call now{OpName::finalize, name_, rank_, options_.timeout, false, false};
  now.knob = kTeardownVariable;
  if (const auto limit = base::env_seconds(kTeardownVariable)) now.limit = *limit;
  try {
    for (const auto& [peer, lane] : pairs_) close(*lane, now);
    if (lane_) close(*lane_, now);
  } catch (...) {
    // Before this rank says that all is well.
    if (lane_)
      lane_->fail({Errc::kAborted, "finalize() was interrupted", now.context()}, /*blocks=*/false);
    leave();
    throw;
  }
  leave();
}

void TorchCommVendor::await_idle() const {
  for (const auto& lane : lanes()) lane->flight()->wait_idle();
}

bool TorchCommVendor::may_go_on() const {
  return std::ranges::any_of(lanes(), [](const auto& lane) { return lane->has_been_captured(); });
}

void TorchCommVendor::close_circle() noexcept {
  if (circle_) circle_->close();
  circle_.reset();
}

void TorchCommVendor::leave() {
  close_circle();
  release(detach(), /*may_block=*/true);
  pair_store_.reset();
  token_ = at::Tensor();
  persistent_.clear();
  if (reconfiguration_) reconfiguration_->close();
  is_finalized_ = true;
}

void TorchCommVendor::close(nccl::Lane& lane, const Call& call) {
  while (!lane.wait_idle(kLeavingTick)) {
    check_interrupt_unwrapped();
    // Its operations may never end where the library cannot abort.
    if (lane.communicator().failure() && library_->CommAbort == nullptr) break;
  }
  // What it shares with the operations goes with them.
  if (&lane != lane_.get() && lane_ && &lane.communicator() == &lane_->communicator()) return;
  if (!lane.communicator().failure()) return part_from_library(lane, call);
  const auto all = lanes();
  if (std::ranges::none_of(all, [](const auto& one) { return one->is_failure_met(); }))
    lane.communicator().failure().check();
}

// The library keeps a communicator for as long as graphs have its operations.
void TorchCommVendor::part_from_library(nccl::Lane& lane, const Call& call) {
  auto wait = nccl::launch_wait(call);
  wait.timeout_text = [&call] { return nccl::limit_text(call, "not finished"); };
  // The library would wait for ranks that have ended it. Who has nothing under way and leaves is
  // not told.
  wait.interrupt_check = [this, &lane, &call] {
    check_interrupt();
    if (!lane.others().is_aborted_by_peer()) return;
    hooks_->cancel();
    lane.end_if_told([&call] { return call.context(); });
  };
  if (lane.is_in_graphs()) wait.deadline = std::min(wait.deadline, Clock::now() + kGraphsMayGo);
  try {
    wait.interrupt_check();
    lane.communicator().failure().check();
    lane.registrations().clear(lane.communicator(), wait);
    lane.windows().clear(lane.communicator(), wait);
    lane.communicator().close(wait);
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    if (lane.others().is_aborted_by_peer()) return;
    if (e.code() != Errc::kTimeout || !lane.is_in_graphs()) {
      // A thread of ours may be in the library still, and others may wait for what it holds.
      const auto why = located(e, lane);
      lane.fail(why, /*blocks=*/false);
      throw CommError(why);
    }
    base::log(base::LogLevel::kInfo,
              "communicator '" + name_ +
                  "' is finalized; its memory stays with the graphs that have its operations");
  }
}
void TorchCommVendor::abort() {
  // First: one that has connected by then has its lane in place.
  if (reconfiguration_) reconfiguration_->abort();
  std::shared_ptr<nccl::Lane> lane;
  {
    const std::lock_guard lock(mutex_);
    lane = lane_;
    if (!lane && reconfiguration_)
      failure_ = CommError(Errc::kAborted, "abort() was called", {.op = "abort", .comm = name_});
  }
  if (!lane) return;
  if (library_->CommAbort == nullptr)
    throw CommError(Errc::kUnsupported,
                    std::string(vendor_.library) + " " + library_->version_text() +
                        " cannot abort its communicators",
                    {.op = "abort", .comm = name_, .rank = rank_});
  // Whoever calls this knows of it.
  if (!lane->communicator().failure()) lane->meet_failure();
  lane->fail({Errc::kAborted, "abort() was called", {.op = "abort", .comm = name_, .rank = rank_}},
             /*blocks=*/true);
  lane->meet_failure();  // by whoever asked for it
}
}  // namespace torch::comms
