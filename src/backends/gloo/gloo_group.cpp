#include "backends/gloo/gloo_group.hpp"

#include <algorithm>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/os/secret.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/work/deferred_teardown.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::gloo {
namespace {

using std::chrono::milliseconds;

// How much longer than its timeout the connect phase may take before it counts as hung.
constexpr milliseconds kGraceToConnect{500};

// The longest pause between two polls of the store.
constexpr milliseconds kMaxConnectPause{20};

NativePtr make_native(const Devices& devices, const Rendezvous& rendezvous, milliseconds limit) {
  auto options = Native::Options::create(limit);
  options->devices = devices;
  // There is one thread, because collectives of a communicator run in the order of their calls.
  options->threads = 1;
  auto store = c10::make_intrusive<c10d::PrefixStore>("gloo", rendezvous.store);
  return c10::make_intrusive<Native>(store, rendezvous.rank, rendezvous.size, options);
}

// Waits for all ranks. A rank that leaves before its peers have read its address would make them
// fail.
void final_barrier(Native& native, milliseconds limit) {
  c10d::BarrierOptions options;
  options.timeout = limit;
  enqueue([&] { return native.barrier(options); })->wait();
}

// Returns: the random number that identifies this split. Rank 0 of the split chooses it.
uint64_t next_split_number(const Rendezvous& rendezvous, const GlooGroup& parent) {
  constexpr const char* kKey = "split/number";
  StoreKeyValue store(rendezvous.store, rendezvous.deadline, {}, rendezvous.address);
  if (rendezvous.rank == 0) {
    const auto number = base::random_number();
    store.set(kKey, std::to_string(number));
    return number;
  }
  for (milliseconds pause{1}; !store.has({kKey}); pause = std::min(2 * pause, kMaxConnectPause)) {
    check_interrupt();
    parent.group_monitor->wait_for_failure(pause);
    parent.peer_monitor->raise_failure([] { return Context{}; });
    if (rendezvous.deadline.has_passed())
      throw CommError(Errc::kTimeout, "rank 0 of the split has not joined");
  }
  return std::stoull(store.get(kKey, rendezvous.deadline.remaining()));
}

void open_group_monitor(GlooGroup& group, const CommOptions& options, const Rendezvous& rendezvous,
                        const SplitParent& origin, const std::string& name) {
  const auto monitor_options = common::parse_monitor_options(options);
  const bool is_enabled =
      origin.group != nullptr ? origin.group->group_monitor != nullptr : monitor_options.is_enabled;
  if (!is_enabled || rendezvous.size == 1) return;
  const auto interface =
      monitor_options.interface.empty() ? chosen_interface(options) : monitor_options.interface;
  group.collective_log = std::make_shared<common::CollectiveLog>(rendezvous.size);
  group.group_monitor =
      origin.group != nullptr
          ? origin.group->group_monitor->split(
                origin.ranks, next_split_number(rendezvous, *origin.group), group.collective_log)
          : common::open_monitor(rendezvous, name, interface, group.collective_log);
  group.peer_monitor = std::make_shared<common::PeerMonitor>(group.group_monitor, nullptr);
}

[[noreturn]] void fail(const CommError& error, const Rendezvous& rendezvous, bool split) {
  std::string why =
      "start-up phase 'connect' (over the store " + rendezvous.address + "): " + error.why();
  if (error.code() == Errc::kTimeout)
    why += ". The timeout is " + bootstrap::format_duration(rendezvous.timeout.duration) +
           "; to allow more time, raise " + rendezvous.timeout.setting;
  Context context = error.context();
  if (!split) context.op = rendezvous.op;
  throw CommError(error.code(), why, context);
}

}  // namespace

GlooGroup::~GlooGroup() {
  native.reset();
  if (is_close_announced) group_monitor->close();
  // The buffers are destroyed last: Gloo must not use a buffer after it is freed, so its connection
  // goes first.
  connections->clear();
}

std::unique_ptr<GlooGroup> connect_group(const CommOptions& options, const GlooCall& call,
                                         const Rendezvous& rendezvous, const SplitParent& origin,
                                         std::vector<TorchCommBackend::InitPhase>& phases) {
  const auto* const parent = origin.group;
  auto begin = Clock::now();
  const auto phase = [&](const char* name) {
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    phases.push_back({name, took.count()});
    begin = Clock::now();
  };
  auto group = std::make_unique<GlooGroup>();
  group->message_waiter =
      parent != nullptr ? parent->message_waiter : std::make_shared<MessageWaiter>();
  try {
    const bool lazy = is_lazy_connect(options);
    group->devices =
        find_devices(options, rendezvous, parent != nullptr ? parent->devices : Devices(), call);
    open_group_monitor(*group, options, rendezvous, origin, call.comm->name);
    if (group->group_monitor) phase("side channel");
    const auto remaining = std::max(rendezvous.deadline.remaining(), milliseconds(1));
    // Gloo runs on a thread of its own, so that Ctrl-C and the timeout end the wait in every case.
    const auto make = [devices = group->devices, rendezvous, remaining, lazy] {
      auto native = make_native(devices, rendezvous, remaining);
      if (!lazy) final_barrier(*native, remaining);
      return native;
    };
    group->native = run_with_timeout(remaining + kGraceToConnect, make, [&] {
      group->peer_monitor->raise_failure([&call] { return context(call); });
    });
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CallTimedOut&) {
    fail({Errc::kTimeout, "Gloo did not finish connecting", context(call)}, rendezvous,
         parent != nullptr);
  } catch (...) {
    auto error = translate_error(std::current_exception(), call);
    // Gloo's error reports that a connection was closed, but not by which rank.
    if (error.code() == Errc::kPeerFailed || error.code() == Errc::kVendor)
      if (const auto peer_failure =
              group->peer_monitor->wait_for_failure(error.context(), kFailureLookupTimeout))
        error = *peer_failure;
    fail(error, rendezvous, parent != nullptr);
  }
  phase("connect");
  return group;
}

void announce_close(GlooGroup& group, int size) {
  if (!group.group_monitor) return;
  group.is_close_announced = true;
  std::vector<monitor::PostedCounts> posted;
  posted.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) posted.push_back(group.message_counters->posted(rank));
  // With nothing in flight, Gloo's connections close now, which ends the operations of peers that
  // wait for this rank.
  group.group_monitor->announce_close(posted, /*to_all_ranks=*/!group.in_flight->is_idle());
}

void teardown_group(std::unique_ptr<GlooGroup> group, bool may_block) {
  if (!group) return;
  auto flight = group->in_flight;
  comms::teardown_async(std::move(flight), [group = group.release()] { delete group; }, may_block);
}

}  // namespace torch::comms::gloo
