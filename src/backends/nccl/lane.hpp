#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include <torchcomms/work.hpp>

#include "nccl/communicator.hpp"
#include "backends/nccl/device.hpp"
#include "core/flight.hpp"
#include "core/watchdog.hpp"

namespace torch::comms::nccl {

class Work;
struct Call;

// The operations of a communicator in the order of its calls: on whatever streams they are, each
// begins when the one before is done. Watches their deadlines, and ends them all when one fails.
//
// Threads: begin() and end() from the one that calls operations; look() from the watchdog.
class Lane final : public Watched, public std::enable_shared_from_this<Lane> {
 public:
  Lane(std::shared_ptr<Communicator> communicator, std::shared_ptr<Device> device,
       std::function<void()> on_failure);

  Communicator& communicator() const noexcept { return *communicator_; }
  Device& device() const noexcept { return *device_; }
  const std::shared_ptr<Flight>& flight() const noexcept { return flight_; }

  // The stream for an operation, ready for it: behind the operation before, and behind what the
  // current stream has where it is another.
  struct Slot {
    gpu::NativeStream stream;
    gpu::CaptureId capture;
    gpu::EventPool::Lease started;  // none in a capture
  };
  Slot begin(bool on_current_stream);
  // The operation has been launched on it. `keep` lives until it is done.
  c10::intrusive_ptr<Work> end(Slot slot, const Call& call, std::vector<at::Tensor> keep);

  // Ends this communicator here, with all its operations: `why` is their error. Any thread.
  void fail(const CommError& why);
  // Blocks until nothing is under way.
  void drain();
  bool look(Clock::time_point now) noexcept override;

 private:
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Device> device_;
  const std::shared_ptr<Flight> flight_ = std::make_shared<Flight>();
  const std::function<void()> on_failure_;

  std::mutex mutex_;  // guards all below
  std::deque<c10::intrusive_ptr<Work>> under_way_;
  // The operation before: where it is, and the event of its end.
  gpu::NativeStream last_stream_ = nullptr;
  gpu::CaptureId last_capture_ = 0;
  std::shared_ptr<gpu::EventPool::Lease> last_end_;
  Clock::time_point next_async_look_{};
};

}  // namespace torch::comms::nccl
