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

// A connected communicator, and what its operations in flight share. Works do not own it.
struct Session {
  ConnectedLinks connected_links;
  std::unique_ptr<EngineGroup> group;
  Placement placement;
  std::shared_ptr<NcclApiBackend> gpu_backend;  // null where there is none
  std::string gpu_unavailable_reason;           // then
  // The same where the members are on several hosts: then it takes some operations alone.
  CtranHierarchicalBackend* hierarchical_backend = nullptr;
  std::shared_ptr<InFlightCounter> in_flight = std::make_shared<InFlightCounter>();
  TensorRegistrations registrations;

  // Memory of calls that go on after Ctrl-C ended their wait: kept until the group's end.
  void retain_storage(std::vector<c10::Storage> memory) {
    std::lock_guard lock(mutex_);
    for (auto& storage : memory) retained_.push_back(std::move(storage));
  }

  // Ends the group before the memory that it may still use.
  ~Session() { group.reset(); }

 private:
  std::mutex mutex_;  // guards left_
  std::vector<c10::Storage> retained_;
};

// A communicator's session while somebody uses it who cannot end it, such as the thread of its own
// engine: where the communicator has let go of it meanwhile, it is ended as end_session() does.
class SessionRef {
 public:
  // `home` is the communicator's, null after its end, and guarded by `mutex`. Both outlive this.
  SessionRef(std::mutex& mutex, const std::shared_ptr<Session>& home);
  ~SessionRef();
  SessionRef(const SessionRef&) = delete;

  Session* get() const noexcept { return session_.get(); }

 private:
  std::mutex& mutex_;
  const std::shared_ptr<Session>& owner_;
  std::shared_ptr<Session> session_;
};

inline constexpr int64_t kAbortHookId = -1;  // of ours among the device's hooks for an abort

// Ends the group if what is on the device has failed, so that the other members learn why.
void end_if_gpu_failed(Session& session) noexcept;

// Ends it when what is in flight has ended: see core/work/deferred_teardown.hpp. With `may_block`
// the caller has finalized or aborted what is on the device; else that has its time, too.
void end_session(std::shared_ptr<Session> session, bool may_block);

// kStaleGeneration, of a split.
CommError parent_reconfigured_error(const Context& context = {});

// One operation as it was called.
struct CallInfo {
  std::string_view op;  // the public name; lives forever
  CallTimeout timeout = kNoTimeout;
};

// `own`, if it is one, else the communicator's.
CallTimeout timeout_or_default_of(std::chrono::milliseconds own,
                                  std::chrono::milliseconds otherwise);

}  // namespace torch::comms::ctran
