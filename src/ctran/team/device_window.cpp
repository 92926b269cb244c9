#include "ctran/team/device_window.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/text/utf8.hpp"

namespace torch::comms::ctran {
namespace {

// A larger put goes by a copy engine, which needs no SMs, but takes some 10 us to begin.
constexpr size_t kKernelPutMaxBytes = size_t{4} << 20;

using kernels::KernelRmaOperation;
using kernels::WindowSignalWords;

// Names the process and device whose copy queue this rank's copies are in; "" if they are in the
// stream's own queue.
std::string queue_of(const transport::nvl::RankContext& context) {
  if (context.driver->name() == "cpu") return {};
  std::string text = std::to_string(::getpid());
  for (const auto byte : context.driver->uuid_of(context.device).bytes)
    text += " " + std::to_string(static_cast<unsigned char>(byte));
  return text;
}

// Formats "SLOTS:QUEUE:METADATA".
std::string serialize(const DeviceWindow::RankMemory& part, const std::string& queue) {
  return std::to_string(part.slots) + ":" + queue + ":" +
         std::string(base::utf8_prefix(part.metadata, DeviceWindow::kMaxMetadataBytes));
}

DeviceWindow::RankMemory parse_rank_memory(const std::string& text, std::string& queue) {
  DeviceWindow::RankMemory part;
  const auto end = std::min(text.find(':'), text.size());
  (void)std::from_chars(text.data(), text.data() + end, part.slots);
  const auto note = end < text.size() ? text.find(':', end + 1) : std::string::npos;
  if (note == std::string::npos) return part;
  queue = text.substr(end + 1, note - end - 1);
  part.metadata = text.substr(note + 1);
  return part;
}

// Formats by rank where this process maps the rank's memory.
std::string addresses_of(const std::vector<DeviceWindow::RankMemory>& parts) {
  std::string text;
  for (const auto& part : parts) text += std::to_string(reinterpret_cast<uintptr_t>(part.at)) + " ";
  return text;
}
uintptr_t address_in(const std::string& text, int rank) {
  const char* at = text.data();
  const char* const end = at + text.size();
  uintptr_t address = 0;
  for (int i = 0; i <= rank && at < end; ++i) at = std::from_chars(at, end, address).ptr + 1;
  return address;
}

}  // namespace

DeviceWindow::DeviceWindowResult DeviceWindow::create(
    const std::shared_ptr<DeviceTeam>& team, const RankMemory& own, std::string decline_reason,
    const transport::nvl::AllGatherStrings& exchange) {
  const auto& context = team->rank_context();
  std::unique_ptr<DeviceWindow> window(new DeviceWindow(team));
  uint64_t most_slots = 0;
  std::set<std::string> queues;
  for (const auto& text : exchange(serialize(own, queue_of(context)))) {
    std::string queue;
    window->rank_memories_.push_back(parse_rank_memory(text, queue));
    most_slots = std::max(most_slots, window->rank_memories_.back().slots);
    if (!queue.empty() && !queues.insert(std::move(queue)).second)
      window->has_separate_copy_queues_ = false;
  }
  auto memory = transport::nvl::PeerMemory::open(context, {own.at, own.size_bytes},
                                                 std::move(decline_reason), exchange);
  if (!memory.memory) return {nullptr, std::move(memory.error)};
  window->memory_ = std::move(memory.memory);
  for (int rank = 0; rank < context.size; ++rank) {
    auto& part = window->rank_memories_[static_cast<size_t>(rank)];
    part.at = static_cast<std::byte*>(window->memory_->at(rank));
    part.size_bytes = window->memory_->size_bytes(rank);
  }
  for (const auto& text : exchange(addresses_of(window->rank_memories_)))
    window->peer_views_.push_back(address_in(text, context.rank));
  auto signal_memory = transport::nvl::SymmetricMemory::make(
      context,
      {sizeof(DeviceApiMemory) + WindowSignalWords::bytes(most_slots), "signal words of a window",
       ""},
      exchange);
  if (!signal_memory.memory) return {nullptr, std::move(signal_memory.error)};
  window->signal_memory_ = std::move(signal_memory.memory);
  return {std::move(window), {}};
}

void* DeviceWindow::address_on_peer(int rank, const void* at) const noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(rank_memory(team_->rank()).at);
  // An address in the peer's process.  NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<void*>(peer_views_[static_cast<size_t>(rank)] +
                                 (reinterpret_cast<uintptr_t>(at) - begin));
}

bool DeviceWindow::contains(const void* at, size_t size_bytes) const noexcept {
  const auto& own = rank_memory(team_->rank());
  const auto begin = reinterpret_cast<uintptr_t>(own.at), first = reinterpret_cast<uintptr_t>(at);
  return own.at != nullptr && first >= begin && first - begin <= own.size_bytes &&
         size_bytes <= own.size_bytes - (first - begin);
}

kernels::WindowCollectiveCall DeviceWindow::make_collective_call(
    const kernels::KernelCall& call, kernels::CopyMethod copy_method) const noexcept {
  kernels::WindowCollectiveCall window_call{call, copy_method, window_id_, {}, {}, {}};
  for (int rank = 0; rank < team_->size(); ++rank) {
    window_call.memory[rank] = rank_memory(rank).at;
    window_call.bytes[rank] = rank_memory(rank).size_bytes;
  }
  return window_call;
}

void DeviceWindow::put(int rank, size_t offset_bytes, const void* from, size_t size_bytes,
                       gpu::NativeStream stream) const {
  auto* const into = rank_memory(rank).at + offset_bytes;
  if (size_bytes == 0 || into == from) return;
  if (size_bytes > kKernelPutMaxBytes || rank == team_->rank())
    return team_->rank_context().runtime->copy_on_device(into, from, size_bytes, stream);
  auto operation = make_operation(KernelRmaOperation::Kind::kPut, rank);
  operation.from = static_cast<const char*>(from);
  operation.into = reinterpret_cast<char*>(into);
  operation.size_bytes = size_bytes;
  team_->run_rma(operation, stream);
}

KernelRmaOperation DeviceWindow::make_operation(KernelRmaOperation::Kind kind, int rank) const {
  KernelRmaOperation operation{};
  operation.kind = kind;
  operation.peer = rank;
  operation.own = signal_words(team_->rank());
  operation.there = signal_words(rank);
  return operation;
}

void DeviceWindow::signal(int rank, gpu::NativeStream stream) const {
  team_->run_rma(make_operation(KernelRmaOperation::Kind::kSignal, rank), stream);
}

void DeviceWindow::store(int rank, uint64_t slot, uint64_t value, gpu::NativeStream stream) const {
  auto operation = make_operation(KernelRmaOperation::Kind::kStore, rank);
  operation.slot = slot;
  operation.value = value;
  team_->run_rma(operation, stream);
}

void DeviceWindow::wait_signal(int rank, uint64_t limit_ns, gpu::NativeStream stream) const {
  auto operation = make_operation(KernelRmaOperation::Kind::kWaitSignal, rank);
  operation.timeout_ns = limit_ns;
  team_->run_rma(operation, stream);
}

void DeviceWindow::wait_slot(uint64_t slot, uint64_t value,
                             kernels::KernelSlotComparison comparison, uint64_t limit_ns,
                             gpu::NativeStream stream) const {
  auto operation = make_operation(KernelRmaOperation::Kind::kWaitSlot, team_->rank());
  operation.slot = slot;
  operation.value = value;
  operation.comparison = comparison;
  operation.timeout_ns = limit_ns;
  team_->run_rma(operation, stream);
}

}  // namespace torch::comms::ctran
