#include "ctran/team/kernel_handles.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <torchcomms/base/error.hpp>
#include <torchcomms/device/handle.hpp>

#include "ctran/kernels/protocol/layout.hpp"

namespace torch::comms::ctran {
namespace {

namespace device = torchcomms::device;

// Device code has its own names for what the kernel library and the host share.
static_assert(device::kMostRanks == kernels::kMaxRanks);
static_assert(offsetof(device::ControlWords, abort) == offsetof(kernels::KernelControl, abort) &&
              offsetof(device::ControlWords, stop) == offsetof(kernels::KernelControl, stop) &&
              offsetof(device::ControlWords, waited_for) ==
                  offsetof(kernels::KernelControl, waited_for) &&
              offsetof(device::ControlWords, what) ==
                  offsetof(kernels::KernelControl, collective) &&
              offsetof(device::ControlWords, launch) == offsetof(kernels::KernelControl, launch));
static_assert(device::kStopAborted == static_cast<uint32_t>(kernels::StopReason::kAborted) &&
              device::kStopLimit == static_cast<uint32_t>(kernels::StopReason::kTimeout) &&
              device::kStopMismatch == static_cast<uint32_t>(kernels::StopReason::kSizeMismatch));
static_assert(std::is_trivially_copyable_v<device::WindowState> &&
              std::is_trivially_copyable_v<device::TransportState> &&
              std::is_trivially_copyable_v<device::RegisteredBuffer>);

device::TeamState team_of(const DeviceTeam& team, kernels::Collective what, uint64_t limit_ns) {
  device::TeamState state{};
  state.rank = team.rank();
  state.size = team.size();
  state.limit_ns = limit_ns;
  auto& own = team.header(team.rank());
  state.stop = reinterpret_cast<device::uint64_t*>(&own.stop);
  state.looked_ns = reinterpret_cast<device::uint64_t*>(&own.last_check_ns);
  for (int rank = 0; rank < team.size(); ++rank)
    state.reported[rank] = reinterpret_cast<device::uint64_t*>(&team.header(rank).reported);
  state.control = const_cast<device::ControlWords*>(
      reinterpret_cast<const device::ControlWords*>(team.control()));
  state.what = static_cast<uint32_t>(what);
  return state;
}

// Writes a value to device memory.
// Blocks: until the value is there, whatever other streams do.
template <class T>
void write(const gpu::Runtime& runtime, T* to, const T& value) {
  const auto stream = runtime.create_stream(false);
  try {
    runtime.copy_to_device(to, &value, sizeof value, stream);
    runtime.synchronize(stream);
  } catch (const CommError&) {
    runtime.destroy_stream(stream);
    throw;
  }
  runtime.destroy_stream(stream);
}

int count_of(const char* what, int requested, int most) {
  if (requested < -1)
    throw CommError(Errc::kInvalidArgument, std::string(what) + " is " + std::to_string(requested) +
                                                ", allowed is -1 to " + std::to_string(most));
  if (requested > most)
    throw CommError(Errc::kOutOfRange, std::string(what) + " is " + std::to_string(requested) +
                                           ", a window has up to " + std::to_string(most));
  return requested < 0 ? most : requested;
}

device::TransportState* handle_in(const transport::nvl::SymmetricMemory& memory, int rank,
                                  int size) {
  return reinterpret_cast<device::TransportState*>(static_cast<std::byte*>(memory.at(rank)) +
                                                   device::TransportArea::bytes(size));
}

}  // namespace

WindowHandle::WindowHandle(std::shared_ptr<const DeviceWindow> window,
                           const WindowHandleCounts& counts, uint64_t limit_ns)
    : window_(std::move(window)), used_buffers_(device::kMostBuffers) {
  const auto& team = window_->team();
  device::WindowState state{};
  state.team = team_of(team, kernels::Collective::kWaitSignal, limit_ns);
  state.signals = count_of("signal_count", counts.signals, device::kMostSignals);
  state.counters = count_of("counter_count", counts.counters, device::kMostCounters);
  state.barriers = count_of("barrier_count", counts.barriers, device::kMostBarriers);
  for (int rank = 0; rank < team.size(); ++rank) {
    const auto& part = window_->rank_memory(rank);
    state.parts[rank] = {reinterpret_cast<char*>(part.at), part.size_bytes,
                         &window_->device_api_memory(rank)->area};
  }
  write(*team.rank_context().runtime, &window_->device_api_memory(team.rank())->handle, state);
}

const void* WindowHandle::address() const noexcept {
  return &window_->device_api_memory(window_->team().rank())->handle;
}

const void* WindowHandle::add_buffer(void* at, size_t size_bytes) {
  const auto free = std::ranges::find(used_buffers_, false);
  if (free == used_buffers_.end())
    throw CommError(Errc::kResourceExhausted, "a window has up to " +
                                                  std::to_string(device::kMostBuffers) +
                                                  " local buffers; deregister one");
  const auto& team = window_->team();
  auto* const buffer =
      &window_->device_api_memory(team.rank())->area.buffers[free - used_buffers_.begin()];
  write(*team.rank_context().runtime, buffer,
        device::RegisteredBuffer{at, size_bytes, const_cast<void*>(address()), {}});
  *free = true;
  return buffer;
}

bool WindowHandle::remove_buffer(const void* handle) {
  const auto& buffers = window_->device_api_memory(window_->team().rank())->area.buffers;
  for (size_t i = 0; i < used_buffers_.size(); ++i) {
    if (&buffers[i] != handle || !used_buffers_[i]) continue;
    used_buffers_[i] = false;
    return true;
  }
  return false;
}

DeviceTransport::DeviceTransportResult DeviceTransport::create(
    const std::shared_ptr<DeviceTeam>& team, uint64_t limit_ns,
    const transport::nvl::AllGatherStrings& exchange) {
  const auto& context = team->rank_context();
  const auto bytes = device::TransportArea::bytes(context.size) + sizeof(device::TransportState);
  auto memory =
      transport::nvl::SymmetricMemory::make(context, {bytes, "device transport", ""}, exchange);
  if (!memory.memory) return {nullptr, std::move(memory.error)};
  device::TransportState handle{};
  handle.team = team_of(*team, kernels::Collective::kExchange, limit_ns);
  for (int rank = 0; rank < context.size; ++rank)
    handle.areas[rank] = static_cast<device::TransportArea*>(memory.memory->at(rank));
  write(*context.runtime, handle_in(*memory.memory, context.rank, context.size), handle);
  return {std::unique_ptr<DeviceTransport>(new DeviceTransport(team, std::move(memory.memory))),
          {}};
}

const void* DeviceTransport::address() const noexcept {
  return handle_in(*memory_, team_->rank(), team_->size());
}

}  // namespace torch::comms::ctran
