#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torchcomms/base/error.hpp>
#include <torchcomms/types.hpp>

#include "backends/ctran/connect.hpp"
#include "backends/ctran/tensor_registrations.hpp"
#include "core/work/inflight_counter.hpp"

namespace torch::comms {
class CtranHierarchicalBackend;
class NcclApiBackend;
}  // namespace torch::comms

namespace torch::comms::ctran {

// A connected communicator, and the state that its operations in flight share. Works do not own a
// session.
struct Session {
  ConnectedLinks connected_links;
  std::unique_ptr<EngineGroup> group;
  Placement placement;
  std::shared_ptr<NcclApiBackend> gpu_backend;  // null if there is none
  std::string gpu_unavailable_reason;           // why gpu_backend is null
  // Equals gpu_backend if the members are on several hosts: it carries out only some operations.
  CtranHierarchicalBackend* hierarchical_backend = nullptr;
  std::shared_ptr<InFlightCounter> in_flight = std::make_shared<InFlightCounter>();
  TensorRegistrations registrations;

  // Retains the memory of a call that continues after Ctrl-C ended its wait, until the group is
  // destroyed.
  void retain_storage(std::vector<c10::Storage> memory) {
    std::lock_guard lock(mutex_);
    for (auto& storage : memory) retained_.push_back(std::move(storage));
  }

  // Destroys the group before the memory that the group may still use.
  ~Session() { group.reset(); }

 private:
  std::mutex mutex_;  // guards retained_
  std::vector<c10::Storage> retained_;
};

// A reference to a communicator's session for a thread that must not end the session itself, such
// as the engine's own thread. If the communicator has released the session meanwhile, the
// destructor ends it with end_session().
class SessionRef {
 public:
  // `session` is the communicator's pointer, null after its end, and guarded by `mutex`. Both must
  // outlive this object.
  SessionRef(std::mutex& mutex, const std::shared_ptr<Session>& session);
  ~SessionRef();
  SessionRef(const SessionRef&) = delete;

  Session* get() const noexcept { return session_.get(); }

 private:
  std::mutex& mutex_;
  const std::shared_ptr<Session>& owner_;
  std::shared_ptr<Session> session_;
};

inline constexpr int64_t kAbortHookId =
    -1;  // identifies this backend's hook among the GPU backend's abort hooks

// Aborts the group if the GPU backend has failed, so that the peers learn the reason.
void end_if_gpu_failed(Session& session) noexcept;

// Ends the session when nothing is in flight any more; see core/work/deferred_teardown.hpp. With
// `may_block` the caller has finalized or aborted the GPU backend; otherwise this function also
// waits until the device is idle.
void end_session(std::shared_ptr<Session> session, bool may_block);

// Returns: the kStaleGeneration error of a split whose parent has been reconfigured.
CommError parent_reconfigured_error(const Context& context = {});

// One operation as the caller issued it.
struct CallInfo {
  std::string_view op;  // the public name; static storage
  CallTimeout timeout = kNoTimeout;
};

// Returns: `own` if it is positive, otherwise the communicator's timeout.
CallTimeout timeout_or_default_of(std::chrono::milliseconds own,
                                  std::chrono::milliseconds fallback);

}  // namespace torch::comms::ctran
