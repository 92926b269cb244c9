#include "ctran/team/side_stream.hpp"

namespace torch::comms::ctran {

SideStream::SideStream(const std::shared_ptr<const gpu::Runtime>& runtime, int device) {
  const gpu::CaptureModeGuard mode(*runtime);
  const gpu::DeviceGuard guard(*runtime, device);
  const auto event = [&]() -> Handle {
    return {runtime->create_event(), [runtime](gpu::NativeEvent it) {
              const gpu::CaptureModeGuard mode(*runtime);
              runtime->destroy_event(it);
            }};
  };
  stream_ = {runtime->create_stream(false), [runtime](gpu::NativeStream it) {
               const gpu::CaptureModeGuard mode(*runtime);
               runtime->destroy_stream(it);
             }};
  forked_ = event();
  joined_ = event();
}

}  // namespace torch::comms::ctran
