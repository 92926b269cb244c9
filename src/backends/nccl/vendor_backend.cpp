#include "backends/nccl/vendor_backend.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include <ATen/ops/zeros.h>

#include "backends/beside/others.hpp"
#include "backends/beside/record.hpp"
#include "backends/nccl/call.hpp"
#include "backends/nccl/hints.hpp"
#include "backends/nccl/lane.hpp"
#include "backends/nccl/persistent.hpp"
#include "backends/nccl/work.hpp"
#include "base/env.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/op_order.hpp"
#include "core/bounded.hpp"
#include "core/cpu_backend.hpp"
#include "core/explain.hpp"
#include "core/hint.hpp"
#include "core/own_check.hpp"
#include "core/reconfiguration.hpp"
#include "core/rendezvous.hpp"
#include "core/retire.hpp"
#include "core/store_adapter.hpp"
#include "tracing/neighbours.hpp"
#include "tracing/recorder.hpp"

namespace torch::comms {
namespace {

using nccl::Call;
using nccl::Clock;
using nccl::Communicator;

constexpr const char* kIdKey = "unique_id";
constexpr const char* kTeardownVariable = "TORCHCOMM_TEARDOWN_TIMEOUT_SECONDS";
// How long finalize() waits for the graphs of a communicator that was captured.
constexpr std::chrono::seconds kGraphsMayGo{2};
// How often a blocked thread looks whether the user wants out (Ctrl-C).
constexpr std::chrono::milliseconds kTick{50};

// The id that rank 0 makes, by way of the store. `look`: see StoreKeyValue::get().
std::string exchange_id(const nccl::Table& library, const Rendezvous& met, const Context& context,
                        const std::function<void()>& look) {
  if (met.rank == 0) {
    auto id = Communicator::make_id(library, context);
    if (met.store) StoreKeyValue(met.store, met.deadline, context, met.address).set(kIdKey, id);
    return id;
  }
  auto id = StoreKeyValue(met.store, met.deadline, context, met.address)
                .get(kIdKey, met.deadline.left(), look);
  if (id.size() != library.vendor().unique_id_bytes)
    throw CommError(Errc::kMismatch,
                    "rank 0 published a unique id of " + std::to_string(id.size()) +
                        " bytes, this rank's library has ids of " +
                        std::to_string(library.vendor().unique_id_bytes) +
                        "; the ranks use different libraries",
                    context);
  return id;
}

// Throws CommError for a value that is not allowed.
void check_exchange_method(const nccl::Vendor& vendor, const Context& context) {
  std::string upper(vendor.backend);
  for (auto& letter : upper) letter = static_cast<char>(std::toupper(letter));
  const auto variable = "TORCHCOMM_" + upper + "_BOOTSTRAP_UNIQUEID_EXCHANGE_METHOD";
  const auto method = base::env_text(variable).value_or("auto");
  if (method != "auto" && method != "tcpstore")
    throw CommError(Errc::kInvalidArgument,
                    variable + "='" + method + "' is not allowed: expected auto or tcpstore",
                    context);
}

}  // namespace

TorchCommVendor::TorchCommVendor(const nccl::Vendor& vendor, std::string backend)
    : vendor_(vendor),
      backend_(std::move(backend)),
      device_(nccl::device_type_of(vendor)),
      wishes_(std::make_unique<nccl::Wishes>()),
      fork_generation_(base::fork_generation()) {}

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
    retire(flight, std::move(let_go), may_block);
  }
}

void TorchCommVendor::init(at::Device device, const std::string& name, const CommOptions& options) {
  start(name, options, {.op = "new_comm", .comm = name});
  if (reconfiguration_) return await_members(device);
  join(device, rendezvous(name, options_, getBackendName()));
}

void TorchCommVendor::init(at::Device device, const bootstrap::Launch& launch,
                           const std::string& name, const CommOptions& options) {
  start(name, options, {.op = "new_comm", .comm = name});
  if (reconfiguration_) return await_members(device);
  join(device, rendezvous(launch, name, options_, getBackendName()));
}

nccl::Table TorchCommVendor::load() const { return nccl::Table::load(vendor_); }

void TorchCommVendor::start(const std::string& name, const CommOptions& options,
                            const Context& context) {
  await_retired();
  name_ = name;
  options_ = options;
  options_.timeout = usable_timeout(options.timeout);
  tell_of_unknown(options.hints);
  with_context(context, [&] {
    if (vendor_.find == nullptr) check_exchange_method(vendor_, context);
    read(options_);
    *wishes_ = nccl::wishes_of(options_);
    nccl::config_of(options_.hints);
    if (!library_) library_ = std::make_shared<const nccl::Table>(load());
    version_ = library_->version_text();
    nccl::require_known(*library_, options_.hints);
  });
  if (!options.enable_reconfigure) return;
  // A communicator that cannot be aborted could not be left, either.
  if (library_->CommAbort == nullptr)
    throw CommError(Errc::kUnsupported,
                    "reconfigure not implemented by backend '" + backend_ + "' with " +
                        library_->path() + ", which cannot abort its communicators: make it " +
                        "without enable_reconfigure",
                    context);
  reconfiguration_ = std::make_unique<Reconfiguration>(backend_, name, options_);
  options_.store.reset();
}

void TorchCommVendor::join(at::Device device, const Rendezvous& met, const Shrink& of_before) {
  const Context context{.op = met.op, .comm = name_, .rank = met.rank};
  phases_ = met.phases;
  connecting_since_ns_ = tracing::now_ns();
  // `body` says whether there was something to do.
  const auto phase = [this](const char* name, const auto& body) {
    const auto begin = Clock::now();
    if (!body()) return;
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    phases_.push_back({name, took.count()});
  };
  try {
    const auto opened = with_context(context, [&] {
      return nccl::Device::open(*library_, device, met.rank, wishes_->high_priority_stream,
                                wishes_->most_events);
    });
    phase("side channel", [&] {
      if (!wishes_->beside.side_channel || met.size < 2) return false;
      record_ = std::make_shared<beside::Record>(met.size);
      circle_ = with_context(context, [&] {
        return beside::open_side_channel(met, name_, wishes_->beside.interface, record_);
      });
      return true;
    });
    const auto limit_text = [&met] {
      return "start-up phase 'connect': the library did not connect all ranks within the limit "
             "of " +
             bootstrap::to_text(met.limit.duration) + "; if it only needs longer, raise " +
             met.limit.knob;
    };
    const auto look = [&] { raise_failure_beside(context); };
    const nccl::Wait wait{Clock::now() + met.deadline.left(), limit_text,
                          [&context]() -> const Context& { return context; },
                          [&] {
                            check_interrupt();
                            look();
                          }};
    std::shared_ptr<Communicator> communicator;
    const auto& runtime = opened->runtime();
    const size_t had_bytes = runtime.free_bytes();
    phase("shrink", [&] {
      if (of_before) communicator = of_before(wait, opened);
      return communicator != nullptr;
    });
    const size_t left_bytes = runtime.free_bytes();
    phase("kernels", [&] {
      const OwnCheck check(look);
      return prepare(met, *opened);
    });
    const size_t taken_bytes = std::max(had_bytes, left_bytes) - left_bytes;
    const size_t free_bytes = runtime.free_bytes() + taken_bytes;
    phase("connect", [&] {
      if (communicator) return false;
      const auto id = exchange_id(*library_, met, context, look);
      communicator = Communicator::connect(library_, met.size, met.rank, id,
                                           nccl::config_of(options_.hints, name_),
                                           nccl::Device::enter(opened), wait);
      return true;
    });
    ranks_.resize(static_cast<size_t>(met.size));
    std::iota(ranks_.begin(), ranks_.end(), 0);
    if (has_pairs() && (options_.store || reconfiguration_)) pair_store_ = met.store;
    enter(std::move(communicator), opened, free_bytes);
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
  connected();
}

// While this rank waits for others before it has a lane.
void TorchCommVendor::raise_failure_beside(const Context& context) const {
  if (!circle_) return;
  if (const auto failure = circle_->failure()) throw beside::error_of(*failure, context);
}

bool TorchCommVendor::init_as(const Membership& membership, at::Device device,
                              const std::string& name, const CommOptions& options,
                              const Connect& connect) {
  start(name, options, {.op = "new_comm", .comm = name});
  connecting_since_ns_ = tracing::now_ns();
  const auto context = [&]() -> Context {
    return {.op = "new_comm", .comm = name_, .rank = membership.rank};
  };
  const bool is_connected = with_context(context, [&] {
    auto opened = nccl::Device::open(*library_, device, membership.rank,
                                     wishes_->high_priority_stream, wishes_->most_events);
    const size_t free_bytes = opened->runtime().free_bytes();
    auto* const made = connect(*opened);
    if (made == nullptr) return false;
    ranks_ = membership.ranks;
    auto communicator = Communicator::adopt(library_, made, static_cast<int>(ranks_.size()),
                                            membership.rank, nccl::Device::enter(opened));
    enter(std::move(communicator), std::move(opened), free_bytes);
    return true;
  });
  if (is_connected) connected();
  return is_connected;
}

void TorchCommVendor::enter(std::shared_ptr<Communicator> communicator,
                            std::shared_ptr<nccl::Device> device, size_t free_bytes) {
  const size_t left = device->runtime().free_bytes();
  library_bytes_ = free_bytes > left ? free_bytes - left : 0;
  rank_ = communicator->rank();
  size_ = communicator->size();
  device_ = device->torch_device();
  token_ = at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(device_));
  options_.store.reset();
  splits_ = 0;
  auto lane = make_lane(std::move(communicator), std::move(device));
  const std::lock_guard lock(mutex_);
  lane_ = std::move(lane);
}

std::shared_ptr<nccl::Lane> TorchCommVendor::make_lane(std::shared_ptr<Communicator> communicator,
                                                       std::shared_ptr<nccl::Device> device) {
  std::unique_ptr<tracing::Neighbours> neighbours;
  if (!circle_)
    neighbours = std::make_unique<tracing::Neighbours>(name_, rank_, size_, connecting_since_ns_);
  auto replays =
      std::make_unique<nccl::Replays>(device, wishes_->watch_replays, wishes_->replays_period);
  if (tells_replays_) replays->collect_events();
  const auto with_this = [weak = weak_from_this()](const auto& body) {
    if (const auto self = weak.lock()) body(*self);
  };
  return std::make_shared<nccl::Lane>(
      name_, std::move(communicator), std::move(device), std::move(replays),
      nccl::Lane::Alarms{[=](const nccl::Lane& lane, const CommError& why) {
                           with_this([&](auto& self) { self.lane_failed(lane, why); });
                         },
                         [=](TorchWork& work) {
                           with_this([&](auto& self) {
                             if (self.on_unseen_failure_) self.on_unseen_failure_(work);
                           });
                         },
                         [=](const nccl::Replays::Event& event) {
                           with_this([&](auto& self) {
                             self.fireGraphReplayHook(event.graph, event.replay,
                                                      reinterpret_cast<uintptr_t>(event.stream),
                                                      event.index, event.begins ? "S" : "E");
                           });
                         }},
      std::make_unique<beside::Others>(circle_, std::move(neighbours)));
}

TorchCommVendor::Lanes TorchCommVendor::lanes() const {
  const std::lock_guard lock(mutex_);
  Lanes all;
  if (lane_) all.push_back(lane_);
  for (const auto& [peer, lane] : pairs_) all.push_back(lane);
  return all;
}

// One that was taken away before says nothing of those that are here.
void TorchCommVendor::lane_failed(const nccl::Lane& lane, const CommError& why) {
  announceAbort();
  const auto all = lanes();
  if (std::ranges::none_of(all, [&](const auto& one) { return one.get() == &lane; })) return;
  for (const auto& one : all) one->fail(why, /*blocks=*/false);
}

std::shared_ptr<Witness> TorchCommVendor::witness() { return record_; }

void TorchCommVendor::registerGraphReplayHook(int64_t id, GraphReplayHook hook) {
  TorchCommBackend::registerGraphReplayHook(id, std::move(hook));
  tells_replays_ = true;
  for (const auto& lane : lanes()) lane->replays().collect_events();
}

nccl::Lane& TorchCommVendor::lane_of_waits() {
  if (auto* const found = lane_of_waits_if_any()) return *found;
  const nccl::Device::Scope as_before(lane_->device());
  return add_pair(
      kWaits, make_lane(lane_->shared_communicator(),
                        nccl::Device::open(*library_, device_, rank_, wishes_->high_priority_stream,
                                           wishes_->most_events)));
}

nccl::Lane& TorchCommVendor::add_pair(int peer, std::shared_ptr<nccl::Lane> lane) {
  auto& added = *lane;
  const std::lock_guard lock(mutex_);
  pairs_[peer] = std::move(lane);
  return added;
}

nccl::Lane* TorchCommVendor::lane_of_waits_if_any() const {
  const auto found = pairs_.find(kWaits);
  return found == pairs_.end() ? nullptr : found->second.get();
}

std::map<std::string, uint64_t> TorchCommVendor::memory_usage() const {
  std::map<std::string, uint64_t> bytes{{"communicator", library_bytes_}};
  if (lane_) bytes["registered tensors"] = lane_->registrations().size_bytes();
  return bytes;
}

std::map<std::string, std::string> TorchCommVendor::notes() const {
  std::map<std::string, std::string> notes;
  if (!lane_) return notes;
  const auto& why_not = lane_->replays().why_not();
  notes["replays of graphs"] =
      why_not.empty() ? "operations in them have their limits" : "not watched: " + why_not;
  if (!made_how_.empty()) notes["reconfigure"] = "the library's communicator is made " + made_how_;
  if (circle_)
    notes["side channel"] = beside::note_of(wishes_->beside);
  else if (size_ > 1)
    notes["side channel"] = "none; ranks of this host are seen by their records";
  return notes;
}

void TorchCommVendor::finalize() {
  auto now = call_of_teardown();
  if (const auto seconds = base::env_seconds(kTeardownVariable)) {
    now.limit = std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000.0));
    now.knob = kTeardownVariable;
  }
  try {
    for (const auto& [peer, lane] : pairs_) close(*lane, now);
    if (lane_) close(*lane_, now);
  } catch (...) {
    leave();
    throw;
  }
  leave();
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
  while (!lane.wait_idle(kTick)) {
    try {
      check_interrupt();
    } catch (const Interrupted& e) {
      e.rethrow_cause();
    }
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
  // The library would wait for ranks that have ended it. Who has nothing under way and leaves is
  // not told.
  wait.check = [this, &lane, &call] {
    check_interrupt();
    if (!lane.others().is_ended()) return;
    hooks_ran_.store(true);
    lane.end_if_told([&call] { return call.context(); });
  };
  if (lane.is_in_graphs()) wait.deadline = std::min(wait.deadline, Clock::now() + kGraphsMayGo);
  try {
    wait.check();
    lane.communicator().failure().check();
    lane.registrations().clear(lane.communicator(), wait);
    lane.windows().clear(lane.communicator(), wait);
    lane.communicator().close(wait);
  } catch (const CommError& e) {
    if (lane.others().is_ended()) return;
    if (e.code() != Errc::kTimeout || !lane.is_in_graphs()) {
      // A thread of ours may be in the library still, and others may wait for what it holds.
      lane.fail(e, /*blocks=*/false);
      throw;
    }
    base::log(base::LogLevel::kInfo,
              "communicator '" + name_ +
                  "' is finalized; its memory stays with the graphs that have its operations");
  }
}

int TorchCommVendor::getRank() const {
  require_not_finalized("get_rank");
  return rank_;
}
int TorchCommVendor::getSize() const {
  require_not_finalized("get_size");
  return size_;
}

void TorchCommVendor::require_not_finalized(const char* op) const {
  if (is_finalized_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized: finalize() was called",
                    {.op = op, .comm = name_});
}

std::string_view TorchCommVendor::getBackendVersion() const { return version_; }

Capabilities TorchCommVendor::capabilities() const {
  auto can = cpu_capabilities();
  can.devices.reset();
  can.devices.set(static_cast<size_t>(device_.type()));
  for (const auto op : {RedOpType::BAND, RedOpType::BOR, RedOpType::BXOR})
    can.reduce_ops.reset(static_cast<size_t>(op));
  can.any_source = false;
  can.self_messages = true;
  can.windows = library_ && library_->is_one_sided();
  can.graph_capture = true;
  can.ends_process = true;
  can.place_before_members = false;
  can.abort = can.reconfigure = !library_ || library_->CommAbort != nullptr;
  return can;
}

Call TorchCommVendor::call(OpName op, bool async_op, const OperationOptions& options,
                           std::string_view name) {
  const bool own = options.timeout.count() > 0;
  Call call{op, name_, rank_, own ? options.timeout : options_.timeout, own, async_op, false, name};
  // For those that are called on the backend itself.
  if (fork_generation_ != base::fork_generation())
    throw CommError(Errc::kForked, "this communicator belongs to the parent process",
                    call.context());
  if (!lane_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized", call.context());
  if (reconfiguration_ && reconfiguration_->is_left_out())
    throw CommError(*reconfiguration_->left_out(call.context()));
  if (circle_ && circle_->is_alarmed()) lane_->end_if_told([&call] { return call.context(); });
  raise_failure(*lane_);
  if (wishes_->beside.check_calls && circle_) check(call);
  before_operation(call);
  return call;
}

void TorchCommVendor::check(const Call& call) {
  if (!base::is_of_collective(call.number)) return;
  const auto context = [&call] { return call.context(); };
  const auto look = [&] {
    check_interrupt();
    lane_->end_if_told(context);
    raise_failure(*lane_);
  };
  try {
    const auto where = lane_->others().await_all(call.number, Clock::now() + call.limit, look);
    if (!where) return;
    lane_->fail({Errc::kTimeout,
                 nccl::limit_text(call, "not begun: not every rank has called it") + where->text,
                 call.context(where->culprits)},
                /*blocks=*/false);
    raise_failure(*lane_);
  } catch (const Interrupted& e) {
    lane_->fail({Errc::kAborted, "the call was interrupted", call.context()}, /*blocks=*/false);
    e.rethrow_cause();
  }
}

Call TorchCommVendor::call_of_teardown() const {
  return {OpName::finalize, name_, rank_, options_.timeout, false, false};
}

void TorchCommVendor::setTimeout(std::chrono::milliseconds timeout) {
  options_.timeout = usable_timeout(timeout);
  for (const auto& lane : lanes()) lane->replays().set_default_limit(options_.timeout);
}

// While the library waits for other ranks outside of an operation, where no watchdog looks.
nccl::Wait TorchCommVendor::wait_of(const Call& now) const {
  auto wait = nccl::launch_wait(now);
  wait.check = [this, &now] {
    check_interrupt();
    lane_->end_if_told([&now] { return now.context(); });
  };
  return wait;
}

void TorchCommVendor::raise_failure(nccl::Lane& lane) {
  const auto& failure = lane.communicator().failure();
  if (!failure) return;
  lane.failure_was_met();
  try {
    failure.check();
  } catch (const CommError& e) {
    throw explained(e);
  }
}

void TorchCommVendor::failed(const CommError& error, const Call& call, nccl::Lane& lane) {
  const auto told = nccl::with_context(error, call);
  const bool refused = error.code() == Errc::kUnsupported ||
                       error.code() == Errc::kInvalidArgument || error.code() == Errc::kFinalized;
  // A call of the library that went wrong leaves the ranks at different places.
  if (!refused) lane.fail(told, /*blocks=*/false);
  // The first reason: what this call met may have come of it.
  raise_failure(lane);
  throw explained(told);
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
  if (!lane->communicator().failure()) lane->failure_was_met();
  lane->fail({Errc::kAborted, "abort() was called", {.op = "abort", .comm = name_, .rank = rank_}},
             /*blocks=*/true);
  lane->failure_was_met();  // by whoever asked for it
}

bool TorchCommVendor::isAborted() const {
  const auto has_failed = [](const auto& lane) { return bool(lane->communicator().failure()); };
  if (std::ranges::any_of(lanes(), has_failed)) return true;
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

std::optional<CommError> TorchCommVendor::failure() const {
  for (const auto& lane : lanes())
    if (auto why = lane->failure({.comm = name_, .rank = rank_})) return why;
  const std::lock_guard lock(mutex_);
  return lane_ ? std::nullopt : failure_;
}

int64_t TorchCommVendor::communicator_address() const {
  if (!lane_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized",
                    {.op = "get_nccl_comm_ptr", .comm = name_});
  return reinterpret_cast<int64_t>(lane_->communicator().handle());
}

}  // namespace torch::comms
