#include "backends/gloo/group.hpp"

#include <algorithm>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/secret.hpp"
#include "core/deferred_teardown.hpp"
#include "core/interruptible_call.hpp"
#include "core/store_adapter.hpp"

namespace torch::comms::gloo {
namespace {

using std::chrono::milliseconds;

// What connecting may take beyond its limit before it counts as stuck.
constexpr milliseconds kGraceToConnect{500};

// Between two looks at the store, at most.
constexpr milliseconds kLongestPause{20};

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

// A number that the members of this split know, and those of no other one: rank 0's.
uint64_t number_of_split(const Rendezvous& met, const Group& parent) {
  constexpr const char* kKey = "split/number";
  StoreKeyValue store(met.store, met.deadline, {}, met.address);
  if (met.rank == 0) {
    const auto number = base::random_number();
    store.set(kKey, std::to_string(number));
    return number;
  }
  for (milliseconds pause{1}; !store.has({kKey}); pause = std::min(2 * pause, kLongestPause)) {
    check_interrupt();
    parent.circle->wait_for_failure(pause);
    parent.others->raise_failure([] { return Context{}; });
    if (met.deadline.has_passed())
      throw CommError(Errc::kTimeout, "rank 0 of the split has not said that it is here");
  }
  return std::stoull(store.get(kKey, met.deadline.remaining()));
}

void open_side_channel(Group& group, const CommOptions& options, const Rendezvous& met,
                       const Origin& origin, const std::string& name) {
  const auto wishes = common::parse_monitor_options(options);
  const bool wanted =
      origin.parent != nullptr ? origin.parent->circle != nullptr : wishes.is_enabled;
  if (!wanted || met.size == 1) return;
  const auto interface = wishes.interface.empty() ? interface_of_choice(options) : wishes.interface;
  group.record = std::make_shared<common::CollectiveLog>(met.size);
  group.circle = origin.parent != nullptr
                     ? origin.parent->circle->split(
                           origin.ranks, number_of_split(met, *origin.parent), group.record)
                     : common::open_monitor(met, name, interface, group.record);
  group.others = std::make_shared<common::PeerMonitor>(group.circle, nullptr);
}

[[noreturn]] void fail(const CommError& error, const Rendezvous& met, bool split) {
  std::string why = "start-up phase 'connect' (over the store " + met.address + "): " + error.why();
  if (error.code() == Errc::kTimeout)
    why += ". The limit is " + bootstrap::format_duration(met.timeout.duration) +
           "; if it only needs longer, raise " + met.timeout.setting;
  Context context = error.context();
  if (!split) context.op = met.op;
  throw CommError(error.code(), why, context);
}

}  // namespace

Group::~Group() {
  native.reset();
  if (has_departed) circle->close();
  // Only now: a buffer that Gloo still knows must not go before its connection.
  peers->clear();
}

std::unique_ptr<Group> connect(const CommOptions& options, const Call& call, const Rendezvous& met,
                               const Origin& origin,
                               std::vector<TorchCommBackend::InitPhase>& phases) {
  const auto* const parent = origin.parent;
  auto begin = Clock::now();
  const auto phase = [&](const char* name) {
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    phases.push_back({name, took.count()});
    begin = Clock::now();
  };
  auto group = std::make_unique<Group>();
  group->services = parent != nullptr ? parent->services : std::make_shared<Services>();
  try {
    const bool lazy = connects_lazily(options);
    group->devices =
        find_devices(options, met, parent != nullptr ? parent->devices : Devices(), call);
    open_side_channel(*group, options, met, origin, call.member->name);
    if (group->circle) phase("side channel");
    const auto left = std::max(met.deadline.remaining(), milliseconds(1));
    // On a thread of its own, so that Ctrl-C and the limit end the wait whatever Gloo does.
    const auto make = [devices = group->devices, met, left, lazy] {
      auto native = make_native(devices, met, left);
      if (!lazy) meet_once_more(*native, left);
      return native;
    };
    group->native = run_with_timeout(left + kGraceToConnect, make, [&] {
      group->others->raise_failure([&call] { return context(call); });
    });
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CallTimedOut&) {
    fail({Errc::kTimeout, "Gloo did not return", context(call)}, met, parent != nullptr);
  } catch (...) {
    auto error = translate(std::current_exception(), call);
    // Gloo's own says that a connection was closed, and not by whom.
    if (error.code() == Errc::kPeerFailed || error.code() == Errc::kVendor)
      if (const auto lost = group->others->wait_for_failure(error.context(), kNaming))
        error = *lost;
    fail(error, met, parent != nullptr);
  }
  phase("connect");
  return group;
}

void depart(Group& group, int size) {
  if (!group.circle) return;
  group.has_departed = true;
  std::vector<monitor::PostedCounts> posted;
  posted.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) posted.push_back(group.tally->posted(rank));
  // With nothing in flight Gloo's connections close now, which ends what waits for this rank.
  group.circle->announce_close(posted, /*tells_all=*/!group.flight->is_idle());
}

void retire(std::unique_ptr<Group> group, bool may_block) {
  if (!group) return;
  auto flight = group->flight;
  comms::teardown_async(std::move(flight), [group = group.release()] { delete group; }, may_block);
}

}  // namespace torch::comms::gloo
