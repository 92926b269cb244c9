#include <cerrno>
#include <ctime>

#include <torchcomms/health_check.hpp>
#include <torchcomms/hooks/debug_info_writer.hpp>
#include <torchcomms/hooks/flight_recorder.hpp>

#include "base/os/env.hpp"
#include "base/os/log.hpp"
#include "hooks/comm_recording.hpp"
#include "hooks/hook_registrations.hpp"

namespace torch::comms::fr {
namespace {

// Waits, so that a health monitor has time to fetch the recorded operations before the process
// ends.
void wait_for_collectors() {
  const auto wait_ms = base::env_int("TORCHCOMM_HEALTH_CHECK_WAIT_MS");
  timespec left{static_cast<time_t>(wait_ms / 1000), static_cast<long>(wait_ms % 1000 * 1000000)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}

void note_abort() {
  auto& health = TorchCommsHealthCheck::get();
  health.setTimedOut();
  // A process that continues must not wait: abort() and raised timeouts call this function, too.
  if (health.isEnding()) wait_for_collectors();
}

}  // namespace

// The state of the hook. The communicators' hooks keep it alive after the hook object is destroyed.
struct FlightRecorderHook::State : std::enable_shared_from_this<State> {
  explicit State(std::shared_ptr<FlightRecorder> shared_recorder)
      : recorder(std::move(shared_recorder)) {}

  void add(const std::shared_ptr<TorchComm>& comm) {
    HookRegistrations::Handles handles;
    handles.push_back(register_observer(
        *comm,
        std::make_shared<CommRecording>(
            recorder, comm, [self = shared_from_this()](const auto& child) { self->add(child); })));
    handles.push_back(comm->registerAbortHook(note_abort));
    registrations.add(comm, std::move(handles));
  }

  std::shared_ptr<FlightRecorder> recorder;
  HookRegistrations registrations;
};

FlightRecorderHook::FlightRecorderHook(size_t max_entries, bool isolated)
    : state_(std::make_shared<State>(isolated ? std::make_shared<FlightRecorder>(max_entries)
                                              : FlightRecorder::get())) {
  if (isolated) resetGlobalOpIdGenerator();
}

void FlightRecorderHook::registerWithComm(const std::shared_ptr<TorchComm>& comm) {
  require_comm(comm);
  state_->add(comm);
}

void FlightRecorderHook::reset() { state_->recorder->reset(); }
size_t FlightRecorderHook::size() const { return state_->recorder->size(); }
void FlightRecorderHook::unregister() { state_->registrations.remove_all(); }
bool FlightRecorderHook::isEnabled() const { return state_->registrations.has_any(); }

std::string FlightRecorderHook::dump_json(bool include_completed) const {
  return state_->recorder->dump_json(include_completed);
}

void FlightRecorderHook::dump_file(int rank, bool include_completed) const noexcept {
  try {
    DebugInfoWriter::getWriter(rank)->write(state_->recorder->dump_pickle(include_completed));
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kError,
              std::string("the flight recorder's dump was not written: ") + error.what());
  }
}

}  // namespace torch::comms::fr
