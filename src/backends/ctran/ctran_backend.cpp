#include "backends/ctran/ctran_backend.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <c10/core/DeviceGuard.h>
#include <torchcomms/base/error.hpp>
#include <torchcomms/factory.hpp>

#include "backends/ctran/call_context.hpp"
#include "backends/ctran/ctran_options.hpp"
#include "backends/ctran/gpu_backend.hpp"
#include "backends/ctran/hierarchical_backend.hpp"
#include "backends/ctran/session.hpp"
#include "base/os/fork.hpp"
#include "core/backend/cpu_backend.hpp"
#include "core/comm/operand_checks.hpp"
#include "core/options/hint.hpp"
#include "core/options/hint_table.hpp"
#include "core/rendezvous/reconfiguration.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/staging/staging.hpp"
#include "core/work/deferred_teardown.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

struct Registration : BackendRegistration {
  Registration() : BackendRegistration("ctran", [] { return std::make_shared<TorchCommCtran>(); }) {
    TorchCommFactory::get().register_allocator_factory("ctran",
                                                       CtranGpuBackend::make_mem_allocator);
  }
};
const Registration registration;

// Waits for all ranks. No rank may leave before its peers have read what it wrote to the store.
void final_barrier(ctran::EngineGroup& group, std::chrono::milliseconds limit) {
  auto barrier = group.start(
      {.name = "barrier", .blocks = schedule::Blocks::even(0, group.size()), .timeout = limit});
  while (!barrier.wait_for(std::chrono::milliseconds(50))) check_interrupt();
  barrier.wait();
}

[[noreturn]] void fail(const CommError& error, const Rendezvous& rendezvous,
                       const std::string& name) {
  std::string why =
      "start-up phase 'connect' (over the store " + rendezvous.address + "): " + error.why();
  if (error.code() == Errc::kTimeout && why.find(rendezvous.timeout.setting) == std::string::npos)
    why += ". The timeout is " + bootstrap::format_duration(rendezvous.timeout.duration) +
           "; to allow more time, raise " + rendezvous.timeout.setting;
  Context context = error.context();
  context.op = rendezvous.op;
  context.comm = name;
  context.rank = rendezvous.rank;
  throw CommError(error.code(), why, context);
}

}  // namespace

TorchCommCtran::TorchCommCtran()
    : algorithm_requests_(std::make_unique<ctran::AlgorithmRequests>()),
      fork_generation_(base::fork_generation()) {}

TorchCommCtran::~TorchCommCtran() {
  if (fork_generation_ != base::fork_generation()) {
    // Threads that exist only in the parent process may hold the session's locks, so the session is
    // leaked.
    static_cast<void>(new std::shared_ptr<ctran::Session>(std::move(session_)));
    static_cast<void>(reconfiguration_.release());
    return;
  }
  // This does not block, because the caller may hold locks that the engine's thread needs, such as
  // Python's GIL.
  ctran::end_session(std::move(session_), /*may_block=*/false);
}

void TorchCommCtran::init(at::Device device, const std::string& name, const CommOptions& options) {
  require_stageable(device, "ctran", name);
  device_ = device;
  begin_init(name, options, {.op = "new_comm", .comm = name});
  if (!reconfiguration_) connect_members(rendezvous(name, options_, getBackendName()));
}

void TorchCommCtran::init(const bootstrap::LaunchInfo& launch, const std::string& name,
                          const CommOptions& options) {
  begin_init(name, options, {.op = "new_comm", .comm = name});
  if (!reconfiguration_) connect_members(rendezvous(launch, name, options_, getBackendName()));
}

void TorchCommCtran::begin_init(const std::string& name, const CommOptions& options,
                                const Context& context) {
  wait_for_teardowns();
  name_ = name;
  options_ = options;
  options_.timeout = timeout_or_default(options.timeout);
  // Hints are parsed first, so that a rank with an invalid hint reports its own error, whatever the
  // peers do.
  ctran::with_context([&] { return context; }, [&] { parse_options(options); });
  if (!options.enable_reconfigure) return;
  reconfiguration_ = std::make_unique<Reconfiguration>("ctran", name, options_);
  options_.store.reset();
}

void TorchCommCtran::parse_options(const CommOptions& options) {
  const bool checks = is_call_check_enabled(options);
  *algorithm_requests_ = ctran::parse_and_validate_hints(options.hints);
  is_call_check_enabled_ = checks;
}

void TorchCommCtran::connect_members(const Rendezvous& rendezvous) {
  phases_ = rendezvous.phases;
  auto session = std::make_shared<ctran::Session>();
  try {
    session->connected_links =
        ctran::connect_links(rendezvous, options_, CtranGpuBackend::model_of(device_), phases_);
    session->group = ctran::EngineGroup::world(session->connected_links.link_context, name_);
    const auto begin = std::chrono::steady_clock::now();
    final_barrier(*session->group,
                  std::max(rendezvous.deadline.remaining(), std::chrono::milliseconds(1)));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    phases_.push_back({"connect", took.count()});
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    fail(e, rendezvous, name_);
  }
  std::vector<int> ranks(static_cast<size_t>(rendezvous.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  identity_ = rendezvous.identity;
  attach_session(std::move(session), std::move(ranks));
}

void TorchCommCtran::attach_session(std::shared_ptr<ctran::Session> session,
                                    std::vector<int> ranks) {
  session->placement = ctran::placement_of(*session->group);
  rank_ = session->group->rank();
  size_ = session->group->size();
  ranks_ = std::move(ranks);
  device_ = staged_device(device_, rank_, "ctran");
  options_.store.reset();
  connect_gpu(session);
  std::lock_guard lock(mutex_);
  session_ = std::move(session);
}

void TorchCommCtran::finalize() {
  std::shared_ptr<ctran::Session> session;
  {
    std::lock_guard lock(mutex_);
    session = std::move(session_);
    session_ = nullptr;
  }
  // The lock is released, because failure() may run callbacks of works that have completed.
  if (session && session->group->failure()) was_aborted_.store(true);
  const bool may_still_run =
      session && session->gpu_backend && session->gpu_backend->may_still_run();
  const auto end = [&] {
    if (session) ctran::end_if_gpu_failed(*session);  // peers learn the reason first
    if (session) session->group->announce_leave();
    ctran::end_session(std::move(session), /*may_block=*/true);
    if (reconfiguration_) reconfiguration_->close();
  };
  try {
    disconnect_gpu(session);
  } catch (...) {
    end();
    throw;
  }
  // The operations on the device have ended.
  if (session && session->gpu_backend && !may_still_run) session->group->announce_quiesced();
  end();
}

std::string_view TorchCommCtran::getBackendVersion() const { return TORCHCOMMS_VERSION; }

Capabilities TorchCommCtran::capabilities() const {
  auto can = staged_capabilities();
  can.self_messages = true;
  can.any_source = true;
  can.counts_splits = false;  // ranks that are in no list need not call split()
  can.abort = true;
  can.ends_process = true;
  can.reconfigure = true;
  can.windows = true;
  can.operations.set(static_cast<size_t>(OpName::new_window));
  const ctran::SessionRef session_ref(mutex_, session_);
  if (const auto* session = session_ref.get(); session != nullptr && session->gpu_backend) {
    // If kernels run all operations, the communicator supports only what the kernels support.
    can.any_source = session->hierarchical_backend != nullptr;
    can.graph_capture = true;
  }
  return can;
}

std::vector<std::string> TorchCommCtran::links() const {
  std::vector<std::string> links;
  if (!session_) return links;
  const auto& group = *session_->group;
  for (int rank = 0; rank < size_; ++rank)
    links.emplace_back(std::string(group.link_context()->link_name(group.context_rank(rank))) +
                       (session_->gpu_backend && rank != rank_ &&
                                group.link_context()->is_same_host(group.context_rank(rank),
                                                                   group.context_rank(rank_))
                            ? ", kernels over mapped memory"
                            : ""));
  return links;
}

std::vector<TorchCommBackend::AlgorithmRange> TorchCommCtran::algorithms() const {
  if (!session_) return {};
  if (session_->gpu_backend && session_->hierarchical_backend == nullptr)
    return session_->gpu_backend->algorithms();
  auto ranges = ctran::algorithm_ranges(*session_->connected_links.selection_inputs,
                                        *session_->group, *algorithm_requests_);
  if (session_->hierarchical_backend == nullptr) return ranges;
  auto device_ranges = session_->hierarchical_backend->algorithms();
  std::erase_if(ranges, [&](const auto& range) {
    return std::ranges::count(device_ranges, range.operation, &AlgorithmRange::operation) > 0;
  });
  ranges.insert(ranges.begin(), device_ranges.begin(), device_ranges.end());
  return ranges;
}

void TorchCommCtran::setTimeout(std::chrono::milliseconds timeout) {
  options_.timeout = timeout_or_default(timeout);
  if (session_ && session_->gpu_backend) session_->gpu_backend->setTimeout(timeout);
}

void TorchCommCtran::setHints(const Hints& hints) {
  auto merged = options_.hints;
  for (const auto& [key, value] : hints) merged[key] = value;
  ctran::with_context([&] { return Context{.op = "set_hints", .comm = name_, .rank = rank_}; },
                      [&] { *algorithm_requests_ = ctran::parse_algorithm_requests(merged); });
  options_.hints = std::move(merged);
}

void TorchCommCtran::tensor_register(const at::Tensor& tensor) {
  constexpr std::string_view kMethod = "tensor_register";
  begin_call(kMethod, {});
  Context context{.op = std::string(kMethod), .comm = name_, .rank = rank_};
  if (tensor.defined() && !tensor.is_cpu() && tensor.device() != device_)
    throw CommError(Errc::kInvalidArgument,
                    "the tensor is on " + tensor.device().str() + ", the communicator is on " +
                        device_.str() + "; allowed are tensors on that device or on cpu",
                    context);
  if (tensor.defined())
    ctran::with_context([&] { return context; }, [&] { require_plain_memory(tensor); });
  session_->registrations.add(tensor, context);
}

void TorchCommCtran::tensor_deregister(const at::Tensor& tensor) {
  const Context context{.op = "tensor_deregister", .comm = name_, .rank = rank_};
  if (!session_) throw CommError(Errc::kFinalized, "the communicator is not initialized", context);
  session_->registrations.remove(tensor, context);
}

void TorchCommCtran::abort() {
  // This is first: a reconfigure() that has connected by then has its session in place.
  if (reconfiguration_) reconfiguration_->abort();
  const ctran::SessionRef session_ref(mutex_, session_);
  auto* session = session_ref.get();
  announceAbort();
  was_aborted_.store(true);
  if (session == nullptr) return;
  if (session->gpu_backend) session->gpu_backend->abort();
  session->group->abort();
}

bool TorchCommCtran::isAborted() const {
  if (was_aborted_.load()) return true;
  const ctran::SessionRef session_ref(mutex_, session_);
  const auto* session = session_ref.get();
  return session != nullptr && (session->group->failure().has_value() ||
                                (session->gpu_backend && session->gpu_backend->isAborted()));
}

std::shared_ptr<TorchCommBackend> TorchCommCtran::split(const std::vector<int>& ranks,
                                                        const std::string& name,
                                                        const CommOptions& options) {
  if (ranks.empty()) return nullptr;
  const c10::DeviceGuard device_guard(device_);
  const auto now = begin_call(OpName::split, {{}, split_timeout(options)});
  auto child = std::make_shared<TorchCommCtran>();
  child->device_ = device_;
  child->begin_init(split_comm_name(name, ranks),
                    inherit_call_check(is_call_check_enabled_, options),
                    {.op = "split", .comm = name_, .rank = rank_});
  const auto links = ctran::parse_link_policy(options.hints);
  if (options.hints.contains(hint::kCtranTransport.name) &&
      links != session_->connected_links.selection_inputs->link_policy)
    throw CommError(Errc::kInvalidArgument,
                    "hint ctran::transport differs from the parent's, whose links a split uses",
                    {.op = "split", .comm = name_, .rank = rank_});
  auto session = std::make_shared<ctran::Session>();
  session->connected_links = session_->connected_links;
  try {
    session->group = session_->group->split(ranks, child->name_, now.timeout);
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    throw handle_failure(e);
  }
  std::vector<int> global_ranks;
  global_ranks.reserve(ranks.size());
  for (const int rank : ranks) global_ranks.push_back(ranks_[static_cast<size_t>(rank)]);
  child->identity_ = split_identity(identity_, ranks, session->group->id());
  child->attach_session(std::move(session), std::move(global_ranks));
  return child;
}

}  // namespace torch::comms
