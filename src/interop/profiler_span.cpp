#include "interop/profiler_span.hpp"

#include <atomic>
#include <string>
#include <utility>

#include <ATen/ThreadLocalState.h>

namespace torch::comms {

void ProfilerSpan::begin(at::StepCallbacks callbacks, const TorchComm& comm, const char* call,
                         at::TensorList tensors) {
  record_ = std::make_shared<at::RecordFunction>(std::move(callbacks));
  record_->_setAsync();  // the span ends on another thread, or among other spans of this thread
  const std::vector<c10::IValue> inputs(tensors.begin(), tensors.end());
  record_->before(comm.getBackend() + ":" + call, &inputs);
}

void ProfilerSpan::end_recorded(const std::vector<WorkPtr>& works) const {
  auto remaining = std::make_shared<std::atomic<size_t>>(works.size());
  // The profiler's state is thread-local, so the callback carries this thread's state.
  const auto end = at::wrapPropagateTLSState([record = record_] { record->end(); });
  for (const auto& work : works)
    work->registerWorkEndHook([remaining, end] {
      if (remaining->fetch_sub(1) == 1) end();
    });
}

}  // namespace torch::comms
