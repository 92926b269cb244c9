#include "backends/gloo/group.hpp"

#include <algorithm>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/system_error.hpp"
#include "core/bounded.hpp"
#include "core/retire.hpp"

namespace torch::comms::gloo {
namespace {

using std::chrono::milliseconds;

// What connecting may take beyond its limit before it counts as stuck.
constexpr milliseconds kPatience{500};

// What a device of Gloo opens, besides a socket for each peer. Where it gets none, Gloo may end the
// process.
constexpr size_t kOfDevice = 8;

NativePtr make_native(const Devices& devices, const Rendezvous& met, milliseconds limit) {
  auto options = Native::Options::create(limit);
  options->devices = devices;
  // One thread: collectives of a communicator run in the order of their calls.
  options->threads = 1;
  auto store = c10::make_intrusive<c10d::PrefixStore>("gloo", met.store);
  return c10::make_intrusive<Native>(store, met.rank, met.size, options);
}

// A rank that left before the others have read its address would fail them.
void meet_once_more(Native& native, milliseconds limit) {
  c10d::BarrierOptions options;
  options.timeout = limit;
  enqueue([&] { return native.barrier(options); })->wait();
}

[[noreturn]] void fail(const CommError& error, const Rendezvous& met, bool split) {
  std::string why = "start-up phase 'connect' (over the store " + met.address + "): " + error.why();
  if (error.code() == Errc::kTimeout)
    why += ". The limit is " + bootstrap::to_text(met.limit.duration) +
           "; if it only needs longer, raise " + met.limit.knob;
  Context context = error.context();
  if (!split) context.op = met.op;
  throw CommError(error.code(), why, context);
}

}  // namespace

Group::~Group() {
  native.reset();
  // Only now: a buffer that Gloo still knows must not go before its connection.
  peers->clear();
}

std::unique_ptr<Group> connect(const CommOptions& options, const Call& call, const Rendezvous& met,
                               const Group* parent,
                               std::vector<TorchCommBackend::InitPhase>& phases) {
  const auto begin = Clock::now();
  auto group = std::make_unique<Group>();
  group->services = parent != nullptr ? parent->services : std::make_shared<Services>();
  try {
    const bool lazy = connects_lazily(options);
    base::require_descriptors(
        kOfDevice + (lazy ? 0 : static_cast<size_t>(std::max(met.size - 1, 0))), "Gloo");
    if (parent != nullptr) group->devices = devices_of_choice(options);
    if (parent != nullptr && group->devices.empty()) group->devices = parent->devices;
    if (group->devices.empty()) group->devices = find_devices(options, met);
    const auto left = std::max(met.deadline.left(), milliseconds(1));
    // On a thread of its own, so that Ctrl-C and the limit end the wait whatever Gloo does.
    group->native = call_within(left + kPatience, [devices = group->devices, met, left, lazy] {
      auto native = make_native(devices, met, left);
      if (!lazy) meet_once_more(*native, left);
      return native;
    });
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const StillRunning&) {
    fail({Errc::kTimeout, "Gloo did not return", context(call)}, met, parent != nullptr);
  } catch (...) {
    fail(translate(std::current_exception(), call), met, parent != nullptr);
  }
  const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
  phases.push_back({"connect", took.count()});
  return group;
}

void retire(std::unique_ptr<Group> group, bool may_block) {
  if (!group) return;
  auto flight = group->flight;
  comms::retire(std::move(flight), [group = group.release()] { delete group; }, may_block);
}

}  // namespace torch::comms::gloo
