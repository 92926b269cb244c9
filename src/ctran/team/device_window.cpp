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
std::string queue_of(const transport::nvl::RankContext& seat) {
  if (seat.driver->name() == "cpu") return {};
  std::string words = std::to_string(::getpid());
  for (const auto byte : seat.driver->uuid_of(seat.device).bytes)
    words += " " + std::to_string(static_cast<unsigned char>(byte));
  return words;
}

// Formats "SLOTS:QUEUE:METADATA".
std::string serialize(const DeviceWindow::RankMemory& part, const std::string& queue) {
  return std::to_string(part.slots) + ":" + queue + ":" +
         std::string(base::utf8_prefix(part.metadata, DeviceWindow::kMaxMetadataBytes));
}

DeviceWindow::RankMemory parse_rank_memory(const std::string& words, std::string& queue) {
  DeviceWindow::RankMemory part;
  const auto end = std::min(words.find(':'), words.size());
  (void)std::from_chars(words.data(), words.data() + end, part.slots);
  const auto note = end < words.size() ? words.find(':', end + 1) : std::string::npos;
  if (note == std::string::npos) return part;
  queue = words.substr(end + 1, note - end - 1);
  part.metadata = words.substr(note + 1);
  return part;
}

// Formats by rank where this process maps the rank's memory.
std::string addresses_of(const std::vector<DeviceWindow::RankMemory>& parts) {
  std::string words;
  for (const auto& part : parts)
    words += std::to_string(reinterpret_cast<uintptr_t>(part.at)) + " ";
  return words;
}
uintptr_t address_in(const std::string& words, int rank) {
  const char* at = words.data();
  const char* const end = at + words.size();
  uintptr_t address = 0;
  for (int i = 0; i <= rank && at < end; ++i) at = std::from_chars(at, end, address).ptr + 1;
  return address;
}

}  // namespace

DeviceWindow::DeviceWindowResult DeviceWindow::create(
    const std::shared_ptr<DeviceTeam>& team, const RankMemory& own, std::string unwilling,
    const transport::nvl::AllGatherStrings& exchange) {
  const auto& seat = team->rank_context();
  std::unique_ptr<DeviceWindow> made(new DeviceWindow(team));
  uint64_t most_slots = 0;
  std::set<std::string> queues;
  for (const auto& words : exchange(serialize(own, queue_of(seat)))) {
    std::string queue;
    made->rank_memories_.push_back(parse_rank_memory(words, queue));
    most_slots = std::max(most_slots, made->rank_memories_.back().slots);
    if (!queue.empty() && !queues.insert(std::move(queue)).second)
      made->has_separate_copy_queues_ = false;
  }
  auto memory = transport::nvl::PeerMemory::open(seat, {own.at, own.size_bytes},
                                                 std::move(unwilling), exchange);
  if (!memory.memory) return {nullptr, std::move(memory.error)};
  made->memory_ = std::move(memory.memory);
  for (int rank = 0; rank < seat.size; ++rank) {
    auto& part = made->rank_memories_[static_cast<size_t>(rank)];
    part.at = static_cast<std::byte*>(made->memory_->at(rank));
    part.size_bytes = made->memory_->size_bytes(rank);
  }
  for (const auto& words : exchange(addresses_of(made->rank_memories_)))
    made->peer_views_.push_back(address_in(words, seat.rank));
  auto words = transport::nvl::SymmetricMemory::make(
      seat,
      {sizeof(DeviceApiMemory) + WindowSignalWords::bytes(most_slots), "signal words of a window",
       ""},
      exchange);
  if (!words.memory) return {nullptr, std::move(words.error)};
  made->signal_memory_ = std::move(words.memory);
  return {std::move(made), {}};
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
    const kernels::KernelCall& call, kernels::CopyMethod carrier) const noexcept {
  kernels::WindowCollectiveCall made{call, carrier, window_id_, {}, {}, {}};
  for (int rank = 0; rank < team_->size(); ++rank) {
    made.memory[rank] = rank_memory(rank).at;
    made.bytes[rank] = rank_memory(rank).size_bytes;
  }
  return made;
}

void DeviceWindow::put(int rank, size_t offset_bytes, const void* from, size_t size_bytes,
                       gpu::NativeStream stream) const {
  auto* const into = rank_memory(rank).at + offset_bytes;
  if (size_bytes == 0 || into == from) return;
  if (size_bytes > kKernelPutMaxBytes || rank == team_->rank())
    return team_->rank_context().runtime->copy_on_device(into, from, size_bytes, stream);
  auto now = make_operation(KernelRmaOperation::Kind::kPut, rank);
  now.from = static_cast<const char*>(from);
  now.into = reinterpret_cast<char*>(into);
  now.size_bytes = size_bytes;
  team_->run_rma(now, stream);
}

KernelRmaOperation DeviceWindow::make_operation(KernelRmaOperation::Kind kind, int rank) const {
  KernelRmaOperation step{};
  step.kind = kind;
  step.peer = rank;
  step.own = signal_words(team_->rank());
  step.there = signal_words(rank);
  return step;
}

void DeviceWindow::signal(int rank, gpu::NativeStream stream) const {
  team_->run_rma(make_operation(KernelRmaOperation::Kind::kSignal, rank), stream);
}

void DeviceWindow::store(int rank, uint64_t slot, uint64_t value, gpu::NativeStream stream) const {
  auto now = make_operation(KernelRmaOperation::Kind::kStore, rank);
  now.slot = slot;
  now.value = value;
  team_->run_rma(now, stream);
}

void DeviceWindow::wait_signal(int rank, uint64_t limit_ns, gpu::NativeStream stream) const {
  auto now = make_operation(KernelRmaOperation::Kind::kWaitSignal, rank);
  now.timeout_ns = limit_ns;
  team_->run_rma(now, stream);
}

void DeviceWindow::wait_slot(uint64_t slot, uint64_t value,
                             kernels::KernelSlotComparison comparison, uint64_t limit_ns,
                             gpu::NativeStream stream) const {
  auto now = make_operation(KernelRmaOperation::Kind::kWaitSlot, team_->rank());
  now.slot = slot;
  now.value = value;
  now.comparison = comparison;
  now.timeout_ns = limit_ns;
  team_->run_rma(now, stream);
}

}  // namespace torch::comms::ctran
