#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include <ATen/ops/zeros.h>

#include "backends/common/collective_log.hpp"
#include "backends/common/peer_monitor.hpp"
#include "backends/nccl/api/nccl_api_backend.hpp"
#include "backends/nccl/api/nccl_options.hpp"
#include "backends/nccl/streams/launch_queue.hpp"
#include "base/net/interfaces.hpp"
#include "base/os/env.hpp"
#include "core/backend/cpu_backend.hpp"
#include "core/comm/error_context.hpp"
#include "core/options/hint.hpp"
#include "core/rendezvous/reconfiguration.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/work/deferred_teardown.hpp"
#include "core/work/interruptible_call.hpp"
#include "core/work/scoped_interrupt_check.hpp"
#include "tracing/local_peers.hpp"
#include "tracing/recorder.hpp"

// How a rank joins a communicator: it loads the library, opens the monitor group, connects the
// library's communicator and creates the LaunchQueue.
namespace torch::comms {
namespace {

using nccl::Clock;
using nccl::Communicator;

constexpr const char* kIdKey = "unique_id";

std::string checked_id(std::string id, const nccl::VendorLibrary& library, const Context& context) {
  if (id.size() == library.vendor().unique_id_bytes) return id;
  throw CommError(Errc::kMismatch,
                  "rank 0 published a unique id of " + std::to_string(id.size()) +
                      " bytes, this rank's library has ids of " +
                      std::to_string(library.vendor().unique_id_bytes) +
                      "; the ranks use different libraries",
                  context);
}

// Returns: the unique id that rank 0 creates and publishes in the store. `interrupt_check`: see
// StoreKeyValue::get().
std::string exchange_id(const nccl::VendorLibrary& library, const Rendezvous& rendezvous,
                        const Context& context, const std::function<void()>& interrupt_check) {
  if (rendezvous.rank == 0) {
    auto id = Communicator::make_id(library, context);
    if (rendezvous.store)
      StoreKeyValue(rendezvous.store, rendezvous.deadline, context, rendezvous.address)
          .set(kIdKey, id);
    return id;
  }
  return checked_id(
      StoreKeyValue(rendezvous.store, rendezvous.deadline, context, rendezvous.address)
          .get(kIdKey, rendezvous.deadline.remaining(), interrupt_check),
      library, context);
}

// Checks the environment variable for the exchange of the unique id.
// Throws: CommError(kInvalidArgument) for a value that is not allowed.
void check_exchange_method(const nccl::Vendor& vendor, const Context& context) {
  std::string upper(vendor.backend);
  for (auto& character : upper) character = static_cast<char>(std::toupper(character));
  const auto variable = "TORCHCOMM_" + upper + "_BOOTSTRAP_UNIQUEID_EXCHANGE_METHOD";
  const auto method = base::env_text(variable).value_or("auto");
  if (method != "auto" && method != "tcpstore")
    throw CommError(Errc::kInvalidArgument,
                    variable + "='" + method + "' is not allowed: expected auto or tcpstore",
                    context);
}
}  // namespace

struct NcclApiBackend::PendingConnect {
  std::shared_ptr<nccl::NcclDevice> device = nullptr;
  size_t free_bytes = 0;  // free memory of the device before the connect
  uint64_t since_ns = 0;  // no rank connected before this time
  std::optional<Communicator::PendingCommInit> connecting = {};
  std::exception_ptr failure = nullptr;  // why the connect was not started
};

void NcclApiBackend::init(at::Device device, const std::string& name, const CommOptions& options) {
  begin_init(name, options, {.op = "new_comm", .comm = name});
  if (reconfiguration_) return init_without_members(device);
  PendingConnect pending;
  const auto result =
      rendezvous(name, options_, getBackendName(), overlapped_connect(device, pending));
  connect_members(device, result, {}, &pending);
}

void NcclApiBackend::init(at::Device device, const bootstrap::LaunchInfo& launch,
                          const std::string& name, const CommOptions& options) {
  begin_init(name, options, {.op = "new_comm", .comm = name});
  if (reconfiguration_) return init_without_members(device);
  PendingConnect pending;
  const auto result = rendezvous(launch, name, options_, getBackendName(), {}, "new_comm",
                                 overlapped_connect(device, pending));
  connect_members(device, result, {}, &pending);
}

nccl::VendorLibrary NcclApiBackend::load_library() const {
  return nccl::VendorLibrary::load(vendor_);
}

void NcclApiBackend::begin_init(const std::string& name, const CommOptions& options,
                                const Context& context) {
  wait_for_teardowns();
  name_ = name;
  options_ = options;
  options_.timeout = timeout_or_default(options.timeout);
  warn_unknown_hints(options.hints);
  with_context(context, [&] {
    if (vendor_.lookup == nullptr) check_exchange_method(vendor_, context);
    parse_options(options_);
    *nccl_options_ = nccl::parse_nccl_options(options_);
    nccl::make_config(options_.hints);
    if (!library_) library_ = std::make_shared<const nccl::VendorLibrary>(load_library());
    version_ = library_->version_text();
    nccl::require_supported_hints(*library_, options_.hints);
  });
  if (!options.enable_reconfigure) return;
  // reconfigure() aborts the former communicator.
  if (library_->CommAbort == nullptr)
    throw CommError(Errc::kUnsupported,
                    "reconfigure not implemented by backend '" + backend_ + "' with " +
                        library_->path() + ", which cannot abort its communicators: create it " +
                        "without enable_reconfigure",
                    context);
  reconfiguration_ = std::make_unique<Reconfiguration>(backend_, name, options_);
  options_.store.reset();
}

OverlappedConnect NcclApiBackend::overlapped_connect(at::Device device, PendingConnect& pending) {
  if (!can_skip_prepare()) return {};
  const auto context = [this](int rank) {
    return Context{.op = "new_comm", .comm = name_, .rank = rank};
  };
  const auto acquire_device = [this, device, &pending, context](int rank) {
    with_context(context(rank), [&] {
      if (!pending.device) pending.device = open_device(device, rank);
      // The monitor would refuse such an interface only after the library has begun to connect.
      if (const auto& monitor_options = nccl_options_->monitor;
          monitor_options.is_enabled && !monitor_options.interface.empty())
        static_cast<void>(
            base::choose_addresses(base::interface_addresses(), monitor_options.interface));
    });
    pending.since_ns = tracing::now_ns();
  };
  // Without an id the start-up continues without overlap, and fails where that fails.
  const auto make_id = [this, context]() -> std::string {
    try {
      return Communicator::make_id(*library_, context(0));
    } catch (const CommError&) {
      return {};
    }
  };
  const auto start_connect = [this, &pending, context](int rank, int size, const std::string& id) {
    connect_begin_ns_ = pending.since_ns;
    // The failure is raised later, when the monitor network can report it to the peers.
    try {
      pending.free_bytes = pending.device->runtime().free_bytes();
      pending.connecting.emplace(Communicator::begin_connect(
          library_, size, rank, checked_id(id, *library_, context(rank)),
          nccl::make_config(options_.hints, name_),
          nccl::NcclDevice::make_current_function(pending.device), context(rank)));
    } catch (const CommError&) {
      pending.failure = std::current_exception();
    }
  };
  return {acquire_device, make_id, start_connect};
}

std::shared_ptr<nccl::NcclDevice> NcclApiBackend::open_device(at::Device device, int rank) const {
  return nccl::NcclDevice::open(*library_, device, rank, nccl_options_->high_priority_stream,
                                nccl_options_->max_events);
}

void NcclApiBackend::connect_members(at::Device device, const Rendezvous& rendezvous,
                                     const Shrink& shrink_previous, PendingConnect* pending) {
  const Context context{.op = rendezvous.op, .comm = name_, .rank = rendezvous.rank};
  phases_ = rendezvous.phases;
  identity_ = rendezvous.identity;
  const bool has_begun = pending != nullptr && pending->connecting;
  if (!has_begun) connect_begin_ns_ = tracing::now_ns();
  // `body` returns whether there was something to do.
  const auto phase = [this](const char* name, const auto& body) {
    const auto begin = Clock::now();
    if (!body()) return;
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    phases_.push_back({name, took.count()});
  };
  try {
    const bool has_side_channel = nccl_options_->monitor.is_enabled && rendezvous.size > 1;
    const auto opened = with_context(context, [&] {
      if (pending != nullptr && pending->device) return pending->device;
      try {
        return open_device(device, rendezvous.rank);
      } catch (const CommError& e) {
        if (has_side_channel) common::decline_monitor(rendezvous, name_, e);
        throw;
      }
    });
    phase("side channel", [&] {
      if (!has_side_channel) return false;
      collective_log_ = std::make_shared<common::CollectiveLog>(rendezvous.size);
      group_monitor_ = with_context(context, [&] {
        return common::open_monitor(rendezvous, name_, nccl_options_->monitor.interface,
                                    collective_log_);
      });
      return true;
    });
    if (pending != nullptr && pending->failure) std::rethrow_exception(pending->failure);
    const auto limit_text = [&rendezvous] {
      return "start-up phase 'connect': the library did not connect all ranks within the timeout "
             "of " +
             bootstrap::format_duration(rendezvous.timeout.duration) +
             "; if all ranks are running, raise " + rendezvous.timeout.setting;
    };
    const auto check_peers = [&] { raise_peer_failure(context); };
    const nccl::WaitOptions wait{Clock::now() + rendezvous.deadline.remaining(), limit_text,
                                 [&context]() -> const Context& { return context; },
                                 [&] {
                                   check_interrupt();
                                   check_peers();
                                 }};
    std::shared_ptr<Communicator> communicator;
    const auto& runtime = opened->runtime();
    const size_t free_bytes_before = has_begun ? 0 : runtime.free_bytes();
    phase("shrink", [&] {
      if (shrink_previous) communicator = shrink_previous(wait, opened);
      return communicator != nullptr;
    });
    const size_t free_bytes_after = has_begun ? 0 : runtime.free_bytes();
    phase("kernels", [&] {
      const ScopedInterruptCheck check(check_peers);
      return prepare(rendezvous, *opened);
    });
    const size_t taken_bytes = std::max(free_bytes_before, free_bytes_after) - free_bytes_after;
    const size_t free_bytes = has_begun ? pending->free_bytes : runtime.free_bytes() + taken_bytes;
    phase("connect", [&] {
      if (communicator) return false;
      communicator = has_begun ? pending->connecting->wait(wait)
                               : Communicator::connect(
                                     library_, rendezvous.size, rendezvous.rank,
                                     exchange_id(*library_, rendezvous, context, check_peers),
                                     nccl::make_config(options_.hints, name_),
                                     nccl::NcclDevice::make_current_function(opened), wait);
      return true;
    });
    ranks_.resize(static_cast<size_t>(rendezvous.size));
    std::iota(ranks_.begin(), ranks_.end(), 0);
    if (has_pair_communicators() && (options_.store || reconfiguration_))
      pair_store_ = rendezvous.store;
    attach_communicator(std::move(communicator), opened, free_bytes);
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
  on_connected();
}

// Called while this rank waits for peers before it has a LaunchQueue.
void NcclApiBackend::raise_peer_failure(const Context& context) const {
  if (!group_monitor_) return;
  if (const auto failure = group_monitor_->failure())
    throw common::to_comm_error(*failure, context);
}

bool NcclApiBackend::init_from_members(const MemberRanks& membership, at::Device device,
                                       const std::string& name, const CommOptions& options,
                                       const Connect& connect) {
  begin_init(name, options, {.op = "new_comm", .comm = name});
  connect_begin_ns_ = tracing::now_ns();
  const auto context = [&]() -> Context {
    return {.op = "new_comm", .comm = name_, .rank = membership.rank};
  };
  const bool is_connected = with_context(context, [&] {
    auto opened = open_device(device, membership.rank);
    const size_t free_bytes = opened->runtime().free_bytes();
    auto* const handle = connect(*opened);
    if (handle == nullptr) return false;
    ranks_ = membership.ranks;
    auto communicator =
        Communicator::adopt(library_, handle, static_cast<int>(ranks_.size()), membership.rank,
                            nccl::NcclDevice::make_current_function(opened));
    attach_communicator(std::move(communicator), std::move(opened), free_bytes);
    return true;
  });
  if (is_connected) on_connected();
  return is_connected;
}

void NcclApiBackend::attach_communicator(std::shared_ptr<Communicator> communicator,
                                         std::shared_ptr<nccl::NcclDevice> device,
                                         size_t free_bytes) {
  const size_t left = device->runtime().free_bytes();
  library_bytes_ = free_bytes > left ? free_bytes - left : 0;
  rank_ = communicator->rank();
  size_ = communicator->size();
  device_ = device->torch_device();
  barrier_tensor_ = at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(device_));
  options_.store.reset();
  split_count_ = 0;
  auto queue = make_launch_queue(std::move(communicator), std::move(device));
  const std::lock_guard lock(mutex_);
  launch_queue_ = std::move(queue);
}

std::shared_ptr<nccl::LaunchQueue> NcclApiBackend::make_launch_queue(
    std::shared_ptr<Communicator> communicator, std::shared_ptr<nccl::NcclDevice> device) {
  std::unique_ptr<tracing::LocalPeerReader> local_peers;
  if (!group_monitor_)
    local_peers = std::make_unique<tracing::LocalPeerReader>(name_, rank_, size_, connect_begin_ns_,
                                                             identity_);
  auto replays = std::make_unique<nccl::GraphReplayMonitor>(device, nccl_options_->monitor_replays,
                                                            nccl_options_->replay_poll_interval);
  if (has_replay_hooks_) replays->collect_events();
  const auto with_this = [weak = weak_from_this()](const auto& body) {
    if (const auto self = weak.lock()) body(*self);
  };
  return std::make_shared<nccl::LaunchQueue>(
      name_, std::move(communicator), std::move(device), std::move(replays),
      nccl::LaunchQueue::FailureCallbacks{
          [=](const nccl::LaunchQueue& queue, const CommError& why) {
            with_this([&](auto& self) { self.on_queue_failed(queue, why); });
          },
          [=](TorchWork& work) {
            with_this([&](auto& self) {
              if (self.on_unowned_failure_) self.on_unowned_failure_(work);
            });
          },
          [=](const nccl::GraphReplayMonitor::ReplayEvent& event) {
            with_this([&](auto& self) {
              self.fireGraphReplayHook(event.graph, event.replay,
                                       reinterpret_cast<uintptr_t>(event.stream), event.index,
                                       event.is_begin ? "S" : "E");
            });
          },
          abort_hook_runner_},
      std::make_unique<common::PeerMonitor>(group_monitor_, std::move(local_peers)));
}
}  // namespace torch::comms
