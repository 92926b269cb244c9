#include "ctran/device/team.hpp"

#include <cstring>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/log.hpp"
#include "base/peer_error_text.hpp"
#include "ctran/device/rounds.hpp"
#include "ctran/kernels/flags.hpp"
#include "ctran/kernels/messages.hpp"
#include "ctran/kernels/window_copies.hpp"
#include "ctran/kernels/window_plan.hpp"
#include "transport/nvl/peer_descriptor.hpp"

namespace torch::comms::ctran {
namespace {

std::atomic_ref<uint32_t> word(uint32_t& at) { return std::atomic_ref<uint32_t>(at); }

// Pinned, so that the device has it at the same address.
Team::PinnedControl make_control(const std::shared_ptr<const gpu::Runtime>& runtime) {
  void* const at = runtime->allocate_pinned(sizeof(kernels::KernelControl));
  std::memset(at, 0, sizeof(kernels::KernelControl));
  return {static_cast<kernels::KernelControl*>(at), [runtime](kernels::KernelControl* control) {
            const gpu::CaptureModeGuard mode(*runtime);
            runtime->free_pinned(control);
          }};
}

// Collective, in one exchange. Why there is none, the same on all ranks; "": there is, to begin
// with `addresses`.
std::string make_growth(const transport::nvl::RankContext& seat,
                        transport::nvl::SymmetricMemory& memory,
                        const transport::nvl::AllGatherStrings& exchange,
                        std::unique_ptr<Growth>& growth, std::vector<std::string>& addresses) {
  const auto why =
      transport::nvl::error_text_of([&] { growth = std::make_unique<Growth>(seat, memory); });
  constexpr char kAddress = '+', kReason = '-';  // what the words behind it are
  addresses = exchange(why.empty() ? kAddress + growth->address() : kReason + why);
  std::vector<std::string> reasons(addresses.size());
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    auto& words = addresses[rank];
    const bool is_reason = words.starts_with(kReason);
    if (!words.empty()) words.erase(0, 1);
    if (is_reason) reasons[rank] = words;
  }
  return transport::nvl::first_error(reasons);
}

[[noreturn]] void refuse(const kernels::KernelMessage& message,
                         const kernels::TeamDescriptor& team) {
  const auto which = std::string(message.is_receive != 0 ? "a receive from" : "a send to") +
                     " rank " + std::to_string(message.peer);
  if (message.data == nullptr && message.bytes > 0)
    throw CommError(Errc::kInvalidArgument,
                    which + " has " + std::to_string(message.bytes) + " bytes and no memory");
  throw CommError(Errc::kInvalidArgument, which + ", where rank " + std::to_string(team.rank) +
                                              " of " + std::to_string(team.size) +
                                              " may have messages with all others");
}

}  // namespace

CommError error_of(const Stopped& stopped, const Context& where, const std::string& kernels,
                   const std::string& launch) {
  const auto peer = "rank " + std::to_string(where.peer);
  const auto whom = where.peer < 0 ? std::string() : ", waiting for " + peer;
  const auto error = [&](Errc code, const std::string& why) {
    return CommError(code, why + launch, where);
  };
  if (stopped.reason == kernels::kWindowMismatch) {
    const bool has_copies = stopped.collective != kernels::Collective::kReduce &&
                            stopped.collective != kernels::Collective::kReduceScatter;
    return error(
        Errc::kMismatch,
        "the tensor of " + peer +
            " is in another window, or has another size; hint registered promises that "
            "outputs, and inputs of reductions, are in the same one on all ranks" +
            (has_copies ? ", and registered=copies that they are at the same place of it" : ""));
  }
  switch (stopped.reason) {
    case kernels::StopReason::kTimeout:
      return error(Errc::kTimeout, kernels + " passed its limit" + whom);
    case kernels::StopReason::kCallMismatch:
      return error(Errc::kMismatch,
                   peer +
                       " has called something else: another operation, count, dtype, reduce "
                       "operation or root, now or before");
    case kernels::StopReason::kSizeMismatch:
      return error(Errc::kMismatch,
                   "the two sides of a message with " + peer + " have different sizes");
    case kernels::StopReason::kInvalidCounts:
      return error(where.peer == where.rank ? Errc::kInvalidArgument : Errc::kMismatch,
                   "the counts of " + peer +
                       " are impossible: negative, beyond its tensor, or not one for what it has "
                       "for itself");
    case kernels::StopReason::kPeerLeft:
      return error(Errc::kPeerFailed, base::peer_closed_text(where.peer));
    default:
      return error(Errc::kAborted, kernels + " was aborted" + whom);
  }
}

Team::Outcome Team::make(int rank, int size, int device,
                         const std::shared_ptr<const gpu::Runtime>& runtime, std::string unwilling,
                         const transport::nvl::AllGatherStrings& exchange, Room room) {
  if (size > kernels::kMaxRanks)
    return {nullptr, std::to_string(size) + " ranks; kernels take up to " +
                         std::to_string(kernels::kMaxRanks)};
  transport::nvl::RankContext seat{rank, size, device, runtime, nullptr};
  transport::nvl::MemoryRequest wanted{0, "", std::move(unwilling)};
  KernelLibrary library{};
  PinnedControl control;
  const auto look = [&] {
    library = KernelLibrary::load(*runtime);
    seat.driver = gpu::Driver::of(*runtime);
    wanted.size_bytes = library.functions->workspace_bytes(size);
    const bool is_first_part =
        room == Room::kFirstPart || (room == Room::kUsual && OneOfDevice::has_any(device));
    if (is_first_part) wanted.initial_bytes = library.functions->rest_offset(size);
    wanted.purpose = "kernels of interface " + std::to_string(library.functions->abi);
    if (library.regions != nullptr)
      wanted.purpose += " with regions " + std::to_string(library.regions->version);
    control = make_control(runtime);
  };
  if (wanted.unavailable_reason.empty())
    wanted.unavailable_reason = transport::nvl::error_text_of(look);
  auto made = transport::nvl::SymmetricMemory::make(seat, wanted, exchange);
  if (!made.memory) return {nullptr, std::move(made.error)};
  std::unique_ptr<Growth> growth;
  std::vector<std::string> addresses;
  if (!made.memory->is_complete())
    if (auto why = make_growth(seat, *made.memory, exchange, growth, addresses); !why.empty())
      return {nullptr, std::move(why)};
  std::unique_ptr<Team> team(new Team(std::move(library), std::move(seat), std::move(made.memory),
                                      std::move(growth), std::move(control)));
  if (team->growth_) team->growth_->begin(addresses);
  return {std::move(team), {}};
}

Team::Team(KernelLibrary library, transport::nvl::RankContext seat,
           std::unique_ptr<transport::nvl::SymmetricMemory> memory, std::unique_ptr<Growth> growth,
           PinnedControl control)
    : library_(std::move(library)),
      seat_(std::move(seat)),
      one_of_device_(seat_.device, seat_.size),
      memory_(std::move(memory)),
      growth_(std::move(growth)),
      control_(std::move(control)) {
  team_.rank = seat_.rank;
  team_.size = seat_.size;
  for (int peer = 0; peer < seat_.size; ++peer) team_.workspace[peer] = memory_->at(peer);
  team_.control = control_.get();
  have_room(growth_ == nullptr);
}

Team::~Team() = default;

bool Team::takes(const kernels::KernelCall& call) const noexcept {
  return library_.functions->can_launch(team_.size, call);
}

kernels::KernelAlgorithm Team::choice(const kernels::KernelCall& call,
                                      int32_t& blocks) const noexcept {
  return library_.functions->choose_algorithm(team_.size, call, &blocks);
}

bool Team::lacks_room(const kernels::WindowCollectiveCall& call) const noexcept {
  return !has_room() && kernels::pushes_operands(team_.size, call);
}

std::string Team::make_room(const std::function<void()>& look) {
  if (has_room()) return {};
  auto why_not = growth_->bring([&] {
    if (word(control_->abort).load(std::memory_order_acquire) != 0)
      throw CommError(Errc::kAborted, "the communicator was aborted");
    look();
  });
  if (why_not.empty()) have_room(true);
  return why_not;
}

void Team::have_room(bool has) noexcept {
  team_.is_partial = has ? 0 : 1;
  workspace_bytes_.store(memory_->size_bytes(), std::memory_order_relaxed);
  word(control_->is_partial).store(has ? 0 : 1, std::memory_order_release);
}

void Team::launch(const kernels::KernelCall& call, gpu::NativeStream stream) {
  TC_CHECK(!lacks_room(call));
  check(library_.functions->launch(team_, call, stream));
}

bool Team::takes_on_region(const kernels::KernelCall& call) const noexcept {
  return library_.regions != nullptr && library_.regions->can_launch(team_.size, call);
}

void Team::launch(kernels::WindowCollectiveCall call, gpu::NativeStream stream) {
  if (!side_ && !has_no_side_ && kernels::needs_side_stream(team_, call)) make_side();
  if (side_) call.side_stream = side_->get();
  TC_CHECK(!lacks_room(call));
  check(library_.regions->launch(team_, call, stream));
}

void Team::make_side() {
  try {
    side_.emplace(seat_.runtime, seat_.device);
  } catch (const CommError& error) {
    has_no_side_ = true;
    base::log(base::LogLevel::kWarning,
              "copies of windows go without a stream beside the call's: " + error.why());
  }
}

void Team::exchange(std::span<const kernels::KernelMessage> messages, uint64_t limit_ns,
                    gpu::NativeStream stream) {
  for (const auto& message : messages)
    if (!kernels::is_valid(team_, message)) refuse(message, team_);
  const auto launch = [&](std::span<const kernels::KernelMessage> some) {
    check(library_.functions->exchange(
        team_, {some.data(), static_cast<int32_t>(some.size()), 0, limit_ns}, stream));
  };
  if (messages.empty()) return;
  std::vector<kernels::KernelMessage> all;
  if (place_) messages = all = marked(messages);
  if (is_one_round(team_.size, messages)) return launch(messages);
  const auto rounds = rounds_of(team_.size, messages);
  size_t begin = 0;
  for (const size_t end : rounds.ends) {
    launch(std::span(rounds.messages).subspan(begin, end - begin));
    begin = end;
  }
}

std::vector<kernels::KernelMessage> Team::marked(
    std::span<const kernels::KernelMessage> messages) const {
  std::vector<kernels::KernelMessage> all(messages.begin(), messages.end());
  for (auto& message : all) {
    if (message.bytes < kLeastStraight) continue;
    if (message.is_receive != 0)
      message.zero_copy_target = place_(message.peer, message.data, message.bytes);
    else
      message.requests_zero_copy = true;
  }
  return all;
}

void Team::step(const kernels::KernelRmaOperation& step, gpu::NativeStream stream) {
  check(library_.functions->rma(team_, step, stream));
}

void Team::exchange(const kernels::AllToAllVDynamic& exchange, gpu::NativeStream stream) {
  check(library_.functions->all_to_all_v_dynamic(team_, exchange, stream));
}

void Team::reduce_scatter(const kernels::QuantizedReduceScatter& call, gpu::NativeStream stream) {
  TC_CHECK(!lacks_room(call));
  check(library_.functions->reduce_scatter_quantized(team_, call, stream));
}

void Team::check(int code) const {
  if (code != 0)
    throw CommError(Errc::kVendor, std::string("the kernel was not launched: ") +
                                       library_.functions->error_text(code) + " (" +
                                       std::to_string(code) + ")");
}

std::optional<Stopped> Team::stopped() const noexcept {
  const auto stop = word(control_->stop).load(std::memory_order_acquire);
  if (stop == 0) return std::nullopt;
  return Stopped{static_cast<kernels::StopReason>(stop),
                 static_cast<kernels::Collective>(control_->collective), control_->waited_for,
                 control_->launch};
}

void Team::set_limit(uint64_t limit_ns) noexcept {
  std::atomic_ref(control_->timeout_ns).store(limit_ns, std::memory_order_relaxed);
}

void Team::abort() noexcept {
  word(control_->abort).store(1, std::memory_order_release);
  if (growth_) growth_->stop();
}

void Team::note_gone(uint32_t ranks) noexcept {
  if (ranks != 0) word(control_->quiesced).fetch_or(ranks, std::memory_order_release);
}

}  // namespace torch::comms::ctran
