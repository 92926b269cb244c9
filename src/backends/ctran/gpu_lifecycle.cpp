#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/CPUAllocator.h>

#include "backends/ctran/alone.hpp"
#include "backends/ctran/ctran_backend.hpp"
#include "backends/ctran/gpu_backend.hpp"
#include "backends/ctran/hierarchical_backend.hpp"
#include "backends/ctran/session.hpp"
#include "core/options/hint.hpp"
#include "core/rendezvous/reconfiguration.hpp"
#include "core/work/interruptible_call.hpp"
#include "transport/nvl/packed_text.hpp"

// Creates and ends the GPU backend of TorchCommCtran with each set of members.
namespace torch::comms {
namespace {

// All-gathers one string of each member over the links, by rank. If an interrupt ends the wait, the
// session retains the buffers, because the group may still use them.
std::vector<std::string> all_gather_strings_over_links(ctran::Session& session,
                                                       ctran::EngineGroup& group,
                                                       const std::string& text,
                                                       const ctran::ExchangePurpose& purpose) {
  using transport::nvl::kPackedTextBytes;
  const auto size = static_cast<size_t>(group.size());
  const auto storage = [](size_t size_bytes) {
    return c10::Storage(c10::Storage::use_byte_size_t(), size_bytes, c10::GetCPUAllocator(), false);
  };
  const auto own = storage(kPackedTextBytes), all = storage(kPackedTextBytes * size);
  const auto packed = transport::nvl::pack_text(text);
  std::memcpy(own.mutable_data(), packed.data(), packed.size());
  const ctran::ConstBytes input(static_cast<const std::byte*>(own.data()), own.nbytes());
  const ctran::Bytes output(static_cast<std::byte*>(all.mutable_data()), all.nbytes());
  try {
    group.run(
        {.name = purpose.name,
         .operation = schedule::Operation::kAllGather,
         .blocks = schedule::Blocks::equal(static_cast<int64_t>(kPackedTextBytes), group.size()),
         .input = {&input, 1},
         .output = {&output, 1},
         .timeout = purpose.timeout});
  } catch (const Interrupted&) {
    session.retain_storage({own, all});
    throw;
  }
  return transport::nvl::unpack_texts(all.data(), size);
}

bool are_hosts_named(const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [](const auto& name) { return !name.empty(); });
}

// Returns: whether a reduction must add in rank order. The call's own hint takes precedence.
bool is_rank_order_required(const TorchCommBackend::OnDevice& query, bool fallback) {
  return query.hints == nullptr ? fallback : is_batch_invariant(*query.hints, fallback);
}

}  // namespace

void TorchCommCtran::connect_gpu(const std::shared_ptr<ctran::Session>& session) {
  if (!CtranGpuBackend::is_supported_device(device_)) return;
  auto options = options_;
  options.enable_reconfigure = false;  // TorchCommCtran itself reconfigures
  const auto gather = [weak = std::weak_ptr(session), limit = options_.timeout](
                          ctran::EngineGroup& group, const std::string& text) {
    const auto session = weak.lock();
    TC_CHECK(session != nullptr);  // the session owns the group
    return all_gather_strings_over_links(*session, group, text, {"new_comm", limit});
  };
  // Peers that fail or leave announce it over the links.
  const auto observer = session->group->observer();
  const auto find_failed_peer = [observer](const Context& context) -> std::optional<CommError> {
    const auto failure = observer.failure();
    if (!failure) return std::nullopt;
    return CommError(failure->code(), failure->why(), context.blaming(failure->context()));
  };
  const auto explain = [weak = weak_from_this()](const CommError& error) {
    const auto self = weak.lock();
    if (!self || !self->reconfiguration_ || error.code() == Errc::kAborted) return error;
    const auto stale = self->reconfiguration_->check_excluded(error.context());
    return stale ? *stale : error;
  };
  auto& group = *session->group;
  const bool one_host = session->placement.is_one_host;
  const bool is_alone = ranks_.size() == 1;
  if (is_alone)
    session->gpu_backend = TorchCommCtranAlone::make(ranks_, device_, name_, options, explain);
  // Containers may share no CPU memory but still map each other's GPU memory.
  else if (one_host ||
           !are_hosts_named(gather(group, session->connected_links.selection_inputs->host_id))) {
    auto result = CtranGpuBackend::make(
        rank_, ranks_, device_, name_, options,
        {[weak = std::weak_ptr(session)](const std::string& text,
                                         const ctran::ExchangePurpose& purpose) {
           const auto session = weak.lock();
           if (!session)
             throw CommError(Errc::kFinalized, "the communicator was finalized or reconfigured");
           return all_gather_strings_over_links(*session, *session->group, text, purpose);
         },
         find_failed_peer, [observer] { return observer.quiesced_ranks(); }, explain,
         session->connected_links.selection_inputs->shared_tuning});
    session->gpu_unavailable_reason = std::move(result.unavailable_reason);
    session->gpu_backend = std::move(result.backend);
  }
  if (!one_host && !is_alone && !session->gpu_backend) {
    auto result = CtranHierarchicalBackend::make(rank_, ranks_, device_, name_, options,
                                                 {group, gather, find_failed_peer, explain});
    session->gpu_unavailable_reason = std::move(result.unavailable_reason);
    session->hierarchical_backend = result.backend.get();
    session->gpu_backend = std::move(result.backend);
  }
  if (!session->gpu_backend) return;
  // A failure on the device ends the communicator as well.
  session->gpu_backend->registerAbortHook(
      ctran::kAbortHookId, [weak = weak_from_this(), dropped = std::weak_ptr(session)] {
        const auto self = weak.lock();
        if (!self) {
          // The thread that ends the session waits until the device is idle; peers need not wait
          // that long.
          if (const auto session = dropped.lock()) ctran::end_if_gpu_failed(*session);
          return;
        }
        self->announceAbort();
        const ctran::SessionRef session_ref(self->mutex_, self->session_);
        if (auto* session = session_ref.get()) ctran::end_if_gpu_failed(*session);
      });
  if (on_unowned_failure_) session->gpu_backend->set_unowned_failure_callback(on_unowned_failure_);
}

void TorchCommCtran::disconnect_gpu(const std::shared_ptr<ctran::Session>& session) {
  if (!session || !session->gpu_backend) return;
  session->gpu_backend->unregisterAbortHook(ctran::kAbortHookId);
  if (session->group->failure()) session->gpu_backend->abort();
  session->gpu_backend->finalize();
}

// Returns null after the links have failed, so that this object raises the failure.
TorchCommBackend* TorchCommCtran::onDevice(const at::Device& device, const OnDevice& query) {
  if (!session_ || !session_->gpu_backend) return nullptr;
  auto& device_backend = *session_->gpu_backend;
  if (device_backend.getDevice().type() != device.type()) return nullptr;
  if (session_->hierarchical_backend != nullptr && !session_->hierarchical_backend->can_run(query))
    return nullptr;
  // Hierarchical collectives add in an order of their own; kernels inside one host add in rank
  // order.
  if (session_->hierarchical_backend != nullptr && query.reduction != nullptr &&
      is_rank_order_required(query, algorithm_requests_->batch_invariant))
    return nullptr;
  if (session_->connected_links.is_superseded->load(std::memory_order_relaxed)) return nullptr;
  if (reconfiguration_ && session_->group->poll_failure()) return nullptr;
  // If the device failed first, its failure is the reason why the links have ended.
  return !session_->group->failure() || device_backend.failure() ? &device_backend : nullptr;
}

KernelBackend* TorchCommCtran::kernel_backend() {
  auto* const device_backend = onDevice(device_, {OpName::new_window, nullptr, at::kByte, nullptr});
  if (device_backend == nullptr || session_->hierarchical_backend != nullptr) return nullptr;
  auto* const kernels = static_cast<KernelBackend*>(device_backend);
  if (size_ > 1) return kernels;
  const auto why = kernels->windows_unavailable_reason();
  session_->gpu_unavailable_reason = why.value_or("");
  return why ? nullptr : kernels;
}

int64_t TorchCommCtran::get_device_transport() {
  constexpr std::string_view kMethod = "get_device_transport";
  begin_call(kMethod, {});
  if (auto* const kernels = kernel_backend()) return kernels->get_device_transport();
  const auto& why = session_->gpu_unavailable_reason;
  throw CommError(Errc::kUnsupported,
                  "backend 'ctran' has no device transport for this communicator" +
                      (why.empty() ? "; tensors are on " + device_.str() : ": " + why),
                  {.op = std::string(kMethod), .comm = name_, .rank = rank_});
}

TorchCommBackend* TorchCommCtran::all_gather_backend() {
  return onDevice(device_, {OpName::all_gather_single, nullptr, at::kByte, nullptr});
}

TorchCommBackend::AllGatherPHandle TorchCommCtran::all_gather_p_init(
    at::Tensor& output, const AllGatherPInitOptions& options) {
  auto* const device_backend = all_gather_backend();
  return device_backend != nullptr ? device_backend->all_gather_p_init(output, options)
                                   : TorchCommBackend::all_gather_p_init(output, options);
}

WorkPtr TorchCommCtran::all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input,
                                          bool async_op, const AllGatherPExecOptions& options) {
  auto* const device_backend = all_gather_backend();
  return device_backend != nullptr
             ? device_backend->all_gather_p_exec(handle, input, async_op, options)
             : TorchCommBackend::all_gather_p_exec(handle, input, async_op, options);
}

void TorchCommCtran::all_gather_p_free(AllGatherPHandle handle) {
  auto* const device_backend = all_gather_backend();
  return device_backend != nullptr ? device_backend->all_gather_p_free(handle)
                                   : TorchCommBackend::all_gather_p_free(handle);
}

std::map<std::string, std::string> TorchCommCtran::describe_entries() const {
  if (!session_) return {};
  if (session_->gpu_backend) return session_->gpu_backend->describe_entries();
  const auto& link_context = *session_->group->link_context();
  std::map<std::string, std::string> notes{{"links", link_context.describe_links()},
                                           {"waits", link_context.describe_waiting()}};
  if (is_call_check_enabled_) notes["calls"] = "compared before they begin";
  if (!session_->gpu_unavailable_reason.empty())
    notes["kernels"] =
        "none, so that tensors are copied through host memory: " + session_->gpu_unavailable_reason;
  return notes;
}

std::map<std::string, uint64_t> TorchCommCtran::memory_usage() const {
  if (!session_) return {};
  std::map<std::string, uint64_t> bytes;
  if (session_->gpu_backend) bytes = session_->gpu_backend->memory_usage();
  if (const auto registered = session_->registrations.size_bytes(); registered > 0)
    bytes["registered tensors"] += registered;
  return bytes;
}

void TorchCommCtran::set_unowned_failure_callback(std::function<void(TorchWork&)> callback) {
  on_unowned_failure_ = std::move(callback);
  if (session_ && session_->gpu_backend)
    session_->gpu_backend->set_unowned_failure_callback(on_unowned_failure_);
}

}  // namespace torch::comms
