#pragma once

#include <vector>

#include <torchcomms/work.hpp>

#include "backends/ctran/session.hpp"

namespace torch::comms::ctran {

// An asynchronous operation. The engine completes it.
// Lifetime: the work keeps itself and its memory alive until then, but never the communicator.
class CtranWork final : public TorchWork, private CompletionListener {
 public:
  using Ptr = c10::intrusive_ptr<CtranWork>;

  // Creates a work and issues `begin(listener)`, which returns the engine's work. Throws: what
  // `begin` throws.
  template <class Begin>
  static Ptr start(const CallInfo& issue, const Session& session, std::vector<c10::Storage> memory,
                   const Begin& begin) {
    auto work = c10::make_intrusive<CtranWork>(issue, session, std::move(memory));
    work->setStatus(WorkStatus::INPROGRESS);
    work->self_ = work;
    try {
      work->native_ = begin(static_cast<CompletionListener*>(work.get()));
    } catch (...) {
      work->self_.reset();
      throw;
    }
    return work;
  }

  // Use start().
  CtranWork(const CallInfo& issue, const Session& session, std::vector<c10::Storage> memory);

  void wait() override;
  void waitBlocking() override { wait(); }
  std::chrono::milliseconds getTimeout() const override { return call_.timeout.duration; }
  int source() const noexcept override { return native_.source(); }

 protected:
  void poll() noexcept override;

 private:
  void on_complete(const CommError* error) noexcept override;

  const CallInfo call_;
  const Context context_;
  const uint64_t fork_generation_;
  EngineWork native_;
  Ptr self_;  // until completion
  std::vector<c10::Storage> memory_;
  InFlightCounter::Token token_;
};

}  // namespace torch::comms::ctran
