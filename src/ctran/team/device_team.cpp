#include "ctran/team/device_team.hpp"

#include <cstring>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/net/peer_error_text.hpp"
#include "base/os/log.hpp"
#include "ctran/kernels/messages/messages.hpp"
#include "ctran/kernels/protocol/flags.hpp"
#include "ctran/kernels/windows/window_copies.hpp"
#include "ctran/kernels/windows/window_plan.hpp"
#include "ctran/team/message_batches.hpp"
#include "transport/nvl/peer_descriptor.hpp"

namespace torch::comms::ctran {
namespace {

std::atomic_ref<uint32_t> word(uint32_t& at) { return std::atomic_ref<uint32_t>(at); }

// Allocates the control block in pinned memory, which the device maps at the same address.
DeviceTeam::PinnedControl make_control(const std::shared_ptr<const gpu::Runtime>& runtime) {
  void* const at = runtime->allocate_pinned(sizeof(kernels::KernelControl));
  std::memset(at, 0, sizeof(kernels::KernelControl));
  return {static_cast<kernels::KernelControl*>(at), [runtime](kernels::KernelControl* control) {
            const gpu::CaptureModeGuard mode(*runtime);
            runtime->free_pinned(control);
          }};
}

// Creates the DeferredWorkspace of all ranks, in one exchange; `addresses` are for its start().
// Collective.
// Returns: "", or why there is none, the same text on all ranks.
std::string make_deferred_workspace(const transport::nvl::RankContext& context,
                                    transport::nvl::SymmetricMemory& memory,
                                    const transport::nvl::AllGatherStrings& exchange,
                                    std::unique_ptr<DeferredWorkspace>& deferred_workspace,
                                    std::vector<std::string>& addresses) {
  const auto why = transport::nvl::error_text_of(
      [&] { deferred_workspace = std::make_unique<DeferredWorkspace>(context, memory); });
  constexpr char kAddress = '+', kReason = '-';  // what the text behind it is
  addresses = exchange(why.empty() ? kAddress + deferred_workspace->address() : kReason + why);
  std::vector<std::string> reasons(addresses.size());
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    auto& text = addresses[rank];
    const bool is_reason = text.starts_with(kReason);
    if (!text.empty()) text.erase(0, 1);
    if (is_reason) reasons[rank] = text;
  }
  return transport::nvl::first_error(reasons);
}

[[noreturn]] void refuse(const kernels::KernelMessage& message,
                         const kernels::TeamDescriptor& team) {
  const auto which = std::string(message.is_receive != 0 ? "a receive from" : "a send to") +
                     " rank " + std::to_string(message.peer);
  if (message.data == nullptr && message.bytes > 0)
    throw CommError(Errc::kInvalidArgument, which + " has " + std::to_string(message.bytes) +
                                                " bytes, but its buffer is null");
  throw CommError(Errc::kInvalidArgument,
                  which + " is not possible: the peers of rank " + std::to_string(team.rank) +
                      " are the other ranks from 0 to " + std::to_string(team.size - 1));
}

}  // namespace

CommError to_error(const KernelFailure& stopped, const Context& where, const std::string& kernels,
                   const std::string& launch) {
  const auto peer = "rank " + std::to_string(where.peer);
  const auto waiting_for = where.peer < 0 ? std::string() : ", waiting for " + peer;
  const auto error = [&](Errc code, const std::string& why) {
    return CommError(code, why + launch, where);
  };
  if (stopped.reason == kernels::kWindowMismatch) {
    const bool has_copies = stopped.collective != kernels::Collective::kReduce &&
                            stopped.collective != kernels::Collective::kReduceScatter;
    return error(
        Errc::kMismatch,
        "the tensor of " + peer +
            " is in another window than on this rank, or has another size; hint registered "
            "requires outputs, and inputs of reductions, to be in the same window on all ranks" +
            (has_copies ? ", and registered=copies requires them at the same offset" : ""));
  }
  switch (stopped.reason) {
    case kernels::StopReason::kTimeout:
      return error(Errc::kTimeout, kernels + " passed its timeout" + waiting_for);
    case kernels::StopReason::kCallMismatch:
      return error(Errc::kMismatch,
                   peer +
                       " has called something else: the operation, count, dtype, reduce operation "
                       "or root differ, in this call or an earlier one");
    case kernels::StopReason::kSizeMismatch:
      return error(Errc::kMismatch,
                   "the two sides of a message with " + peer + " have different sizes");
    case kernels::StopReason::kInvalidCounts:
      return error(where.peer == where.rank ? Errc::kInvalidArgument : Errc::kMismatch,
                   "the counts of " + peer +
                       " are invalid: a count is negative, their sum exceeds the tensor, or its "
                       "input and output count for itself differ");
    case kernels::StopReason::kPeerLeft:
      return error(Errc::kPeerFailed, base::peer_closed_text(where.peer));
    default:
      return error(Errc::kAborted, kernels + " was aborted" + waiting_for);
  }
}

DeviceTeam::DeviceTeamResult DeviceTeam::create(int rank, int size, int device,
                                                const std::shared_ptr<const gpu::Runtime>& runtime,
                                                std::string decline_reason,
                                                const transport::nvl::AllGatherStrings& exchange,
                                                WorkspaceExtent extent) {
  if (size > kernels::kMaxRanks)
    return {nullptr, "the kernels support up to " + std::to_string(kernels::kMaxRanks) +
                         " ranks, and the communicator has " + std::to_string(size)};
  transport::nvl::RankContext context{rank, size, device, runtime, nullptr};
  transport::nvl::MemoryRequest request{0, "", std::move(decline_reason)};
  KernelLibrary library{};
  PinnedControl control;
  const auto probe = [&] {
    library = KernelLibrary::load(*runtime);
    context.driver = gpu::Driver::of(*runtime);
    request.size_bytes = library.functions->workspace_bytes(size);
    const bool is_first_part =
        extent == WorkspaceExtent::kPartial ||
        (extent == WorkspaceExtent::kDefault && DeviceTeamCount::has_any(device));
    if (is_first_part) request.initial_bytes = library.functions->rest_offset(size);
    request.purpose = "kernel interface " + std::to_string(library.functions->abi);
    if (library.window_collectives != nullptr)
      request.purpose +=
          ", window collectives " + std::to_string(library.window_collectives->version);
    control = make_control(runtime);
  };
  if (request.unavailable_reason.empty())
    request.unavailable_reason = transport::nvl::error_text_of(probe);
  auto memory = transport::nvl::SymmetricMemory::make(context, request, exchange);
  if (!memory.memory) return {nullptr, std::move(memory.error)};
  std::unique_ptr<DeferredWorkspace> deferred_workspace;
  std::vector<std::string> addresses;
  if (!memory.memory->is_complete())
    if (auto why = make_deferred_workspace(context, *memory.memory, exchange, deferred_workspace,
                                           addresses);
        !why.empty())
      return {nullptr, std::move(why)};
  std::unique_ptr<DeviceTeam> team(
      new DeviceTeam(std::move(library), std::move(context), std::move(memory.memory),
                     std::move(deferred_workspace), std::move(control)));
  if (team->deferred_workspace_) team->deferred_workspace_->start(addresses);
  return {std::move(team), {}};
}

DeviceTeam::DeviceTeam(KernelLibrary library, transport::nvl::RankContext context,
                       std::unique_ptr<transport::nvl::SymmetricMemory> memory,
                       std::unique_ptr<DeferredWorkspace> deferred_workspace, PinnedControl control)
    : library_(std::move(library)),
      rank_context_(std::move(context)),
      team_count_(rank_context_.device, rank_context_.size),
      memory_(std::move(memory)),
      deferred_workspace_(std::move(deferred_workspace)),
      control_(std::move(control)) {
  descriptor_.rank = rank_context_.rank;
  descriptor_.size = rank_context_.size;
  for (int peer = 0; peer < rank_context_.size; ++peer)
    descriptor_.workspace[peer] = memory_->at(peer);
  descriptor_.control = control_.get();
  set_full_workspace(deferred_workspace_ == nullptr);
}

DeviceTeam::~DeviceTeam() = default;

bool DeviceTeam::can_launch(const kernels::KernelCall& call) const noexcept {
  return library_.functions->can_launch(descriptor_.size, call);
}

kernels::KernelAlgorithm DeviceTeam::choose_algorithm(const kernels::KernelCall& call,
                                                      int32_t& blocks) const noexcept {
  return library_.functions->choose_algorithm(descriptor_.size, call, &blocks);
}

bool DeviceTeam::needs_full_workspace(const kernels::WindowCollectiveCall& call) const noexcept {
  return !has_full_workspace() && kernels::pushes_operands(descriptor_.size, call);
}

std::string DeviceTeam::allocate_rest(const std::function<void()>& interrupt_check) {
  if (has_full_workspace()) return {};
  auto why_not = deferred_workspace_->allocate_collectively([&] {
    if (word(control_->abort).load(std::memory_order_acquire) != 0)
      throw CommError(Errc::kAborted, "the communicator was aborted");
    interrupt_check();
  });
  if (why_not.empty()) set_full_workspace(true);
  return why_not;
}

void DeviceTeam::set_full_workspace(bool has) noexcept {
  descriptor_.is_partial = has ? 0 : 1;
  workspace_bytes_.store(memory_->size_bytes(), std::memory_order_relaxed);
  word(control_->is_partial).store(has ? 0 : 1, std::memory_order_release);
}

void DeviceTeam::launch(const kernels::KernelCall& call, gpu::NativeStream stream) {
  TC_CHECK(!needs_full_workspace(call));
  check(library_.functions->launch(descriptor_, call, stream));
}

bool DeviceTeam::can_launch_on_window(const kernels::KernelCall& call) const noexcept {
  return library_.window_collectives != nullptr &&
         library_.window_collectives->can_launch(descriptor_.size, call);
}

void DeviceTeam::launch(kernels::WindowCollectiveCall call, gpu::NativeStream stream) {
  if (!side_stream_ && !has_side_stream_failed_ && kernels::needs_side_stream(descriptor_, call))
    create_side_stream();
  if (side_stream_) call.side_stream = side_stream_->get();
  TC_CHECK(!needs_full_workspace(call));
  check(library_.window_collectives->launch(descriptor_, call, stream));
}

void DeviceTeam::create_side_stream() {
  try {
    side_stream_.emplace(rank_context_.runtime, rank_context_.device);
  } catch (const CommError& error) {
    has_side_stream_failed_ = true;
    base::log(
        base::LogLevel::kWarning,
        "cannot create a side stream; copies between windows run on the stream of the call: " +
            error.why());
  }
}

void DeviceTeam::exchange(std::span<const kernels::KernelMessage> messages, uint64_t limit_ns,
                          gpu::NativeStream stream) {
  for (const auto& message : messages)
    if (!kernels::is_valid(descriptor_, message)) refuse(message, descriptor_);
  const auto launch = [&](std::span<const kernels::KernelMessage> some) {
    check(library_.functions->exchange(
        descriptor_, {some.data(), static_cast<int32_t>(some.size()), 0, limit_ns}, stream));
  };
  if (messages.empty()) return;
  std::vector<kernels::KernelMessage> all;
  if (peer_address_) messages = all = mark_zero_copy(messages);
  if (fits_one_batch(descriptor_.size, messages)) return launch(messages);
  const auto batches = make_batches(descriptor_.size, messages);
  size_t begin = 0;
  for (const size_t end : batches.ends) {
    launch(std::span(batches.messages).subspan(begin, end - begin));
    begin = end;
  }
}

std::vector<kernels::KernelMessage> DeviceTeam::mark_zero_copy(
    std::span<const kernels::KernelMessage> messages) const {
  std::vector<kernels::KernelMessage> all(messages.begin(), messages.end());
  for (auto& message : all) {
    if (message.bytes < kZeroCopyMinBytes) continue;
    if (message.is_receive != 0)
      message.zero_copy_target = peer_address_(message.peer, message.data, message.bytes);
    else
      message.requests_zero_copy = true;
  }
  return all;
}

void DeviceTeam::run_rma(const kernels::KernelRmaOperation& step, gpu::NativeStream stream) {
  check(library_.functions->rma(descriptor_, step, stream));
}

void DeviceTeam::exchange(const kernels::AllToAllVDynamic& exchange, gpu::NativeStream stream) {
  check(library_.functions->all_to_all_v_dynamic(descriptor_, exchange, stream));
}

void DeviceTeam::reduce_scatter(const kernels::QuantizedReduceScatter& call,
                                gpu::NativeStream stream) {
  TC_CHECK(!needs_full_workspace(call));
  check(library_.functions->reduce_scatter_quantized(descriptor_, call, stream));
}

void DeviceTeam::check(int code) const {
  if (code != 0)
    throw CommError(Errc::kVendor, std::string("the kernel was not launched: ") +
                                       library_.functions->error_text(code) + " (" +
                                       std::to_string(code) + ")");
}

std::optional<KernelFailure> DeviceTeam::failure() const noexcept {
  const auto stop = word(control_->stop).load(std::memory_order_acquire);
  if (stop == 0) return std::nullopt;
  return KernelFailure{static_cast<kernels::StopReason>(stop),
                       static_cast<kernels::Collective>(control_->collective), control_->waited_for,
                       control_->launch};
}

void DeviceTeam::set_timeout(uint64_t limit_ns) noexcept {
  std::atomic_ref(control_->timeout_ns).store(limit_ns, std::memory_order_relaxed);
}

void DeviceTeam::abort() noexcept {
  word(control_->abort).store(1, std::memory_order_release);
  if (deferred_workspace_) deferred_workspace_->stop();
}

void DeviceTeam::mark_quiesced(uint32_t ranks) noexcept {
  if (ranks != 0) word(control_->quiesced).fetch_or(ranks, std::memory_order_release);
}

}  // namespace torch::comms::ctran
