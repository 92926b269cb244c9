#include <algorithm>
#include <chrono>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/nccl/call.hpp"
#include "backends/nccl/device.hpp"
#include "backends/nccl/hints.hpp"
#include "backends/nccl/lane.hpp"
#include "backends/nccl/vendor_backend.hpp"
#include "base/log.hpp"
#include "core/bounded.hpp"
#include "core/explain.hpp"
#include "core/reconfiguration.hpp"
#include "core/rendezvous.hpp"

// Members that come and go.
namespace torch::comms {
namespace {

using nccl::Clock;
using nccl::Lane;

// For synchronous operations that are under way, once all members are there.
constexpr std::chrono::seconds kPatience{1};
constexpr std::chrono::milliseconds kTick{20};

// What is under way ends: by itself, where nobody holds a work that would tell of an abort, else
// now. Throws Interrupted.
void quiesce(Lane& lane, const Context& context, bool patient) {
  const auto end = Clock::now() + kPatience;
  lane.look(Clock::now());
  while (patient && lane.is_owed() && !lane.communicator().failure() && Clock::now() < end) {
    check_interrupt();
    lane.wait_idle(kTick);
  }
  if (lane.is_idle() && !lane.communicator().failure()) return;
  if (lane.is_owed() && !lane.communicator().failure())
    base::log(base::LogLevel::kWarning,
              "communicator '" + lane.name() +
                  "': reconfigure() ends a synchronous operation that did not end by itself; its "
                  "output is undefined");
  lane.fail({Errc::kAborted, "reconfigure() was called", context}, /*blocks=*/true);
}

}  // namespace

void TorchCommVendor::await_members(at::Device device) {
  // Now, so that a device which cannot be is refused before anybody waits for this member.
  with_context([&] { return Context{.op = "new_comm", .comm = name_}; },
               [&] {
                 device_ = nccl::Device::open(*library_, device, std::nullopt,
                                              wishes_->high_priority_stream, wishes_->most_events)
                               ->torch_device();
               });
}

InitHandle TorchCommVendor::getInitHandle() const {
  return Reconfiguration::of(reconfiguration_,
                             {.op = "get_init_handle", .comm = name_, .rank = rank_})
      .handle();
}

CommError TorchCommVendor::explained(const CommError& error) {
  const bool of_the_world = error.code() == Errc::kPeerFailed || error.code() == Errc::kTimeout ||
                            error.code() == Errc::kVendor;
  if (reconfiguration_ && of_the_world)
    if (const auto stale = reconfiguration_->left_out(error.context())) return *stale;
  return error;
}

WorkPtr TorchCommVendor::reconfigure(const ReconfigureOptions& options) {
  const Context context{.op = "reconfigure", .comm = name_, .rank = rank_};
  auto& reconfiguration = Reconfiguration::of(reconfiguration_, context);
  const auto members = reconfiguration.members(options, options_.timeout);
  auto wished = options_;
  for (const auto& [key, value] : options.hints) wished.hints[key] = value;
  with_context(context, [&] {
    read(wished);
    nccl::config_of(wished.hints);
    *wishes_ = nccl::wishes_of(wished);
  });
  options_ = std::move(wished);

  const auto part = [&] {
    close_circle();
    rank_ = size_ = -1;
    ranks_.clear();
    pair_store_.reset();
    return detach();
  };
  auto before = part();
  // Whoever asked for this needs no news of it.
  const bool news = hooks_ran_.exchange(true);
  const auto end = [&](bool patient) {
    for (const auto& lane : before) quiesce(*lane, context, patient);
    hooks_ran_.store(news);
  };
  WorkPtr work;
  try {
    work = reconfiguration.run(members, [&](const Rendezvous& met) {
      // All that come have left their last operation, and need no more of this one's memory when
      // they have connected anew.
      end(/*patient=*/true);
      join(device_, met);
    });
    end(/*patient=*/false);
  } catch (...) {
    release(std::move(before), /*may_block=*/false);
    throw;
  }
  release(std::move(before), /*may_block=*/true);
  if (work->isCompleted()) {
    {
      const std::lock_guard lock(mutex_);
      failure_.reset();
    }
    hooks_ran_.store(false);
  } else {
    release(part(), /*may_block=*/false);  // an abort() may have come when it was connected
  }
  return work;
}

}  // namespace torch::comms
