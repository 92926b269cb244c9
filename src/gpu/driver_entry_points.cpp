#include "gpu/driver_entry_points.hpp"

#include <string>
#include <type_traits>

#include "gpu/cuda_library.hpp"

namespace torch::comms::gpu {

DriverEntryPoints cuda_driver_entry_points() {
  DriverEntryPoints shortcuts;
  const auto bind = [](auto& function, const char* name) {
    std::string why;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        cuda_driver_function(name, why));
  };
  bind(shortcuts.EventRecord, "EventRecord");
  bind(shortcuts.EventQuery, "EventQuery");
  bind(shortcuts.StreamWaitEvent, "StreamWaitEvent");
  bind(shortcuts.StreamIsCapturing, "StreamIsCapturing");
  bind(shortcuts.CtxGetCurrent, "CtxGetCurrent");
  bind(shortcuts.ThreadExchangeStreamCaptureMode, "ThreadExchangeStreamCaptureMode");
  bind(shortcuts.StreamSynchronize, "StreamSynchronize");
  bind(shortcuts.StreamDestroy, "StreamDestroy_v2");
  bind(shortcuts.EventDestroy, "EventDestroy_v2");
  bind(shortcuts.FreeHost, "MemFreeHost");
  return shortcuts;
}

}  // namespace torch::comms::gpu
