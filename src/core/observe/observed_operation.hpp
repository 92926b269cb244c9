#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>

#include <c10/util/SmallVector.h>
#include <torchcomms/work.hpp>

#include "core/observe/operation_observer.hpp"
#include "core/observe/operation_record.hpp"
#include "tracing/recorder.hpp"

namespace torch::comms {

// One operation, which the event ring records and the observers of its communicator see. The ring
// is not one of the observers, because it records every operation: a direct call is faster.
// begin() allocates nothing, so that an operation that has its sequence number also begins.
// Threads: after begin() any.
class ObservedOperation {
 public:
  template <class Op>
  ObservedOperation(const Op& op, const ObserverList& observers) : record(make_record(op)) {
    if (!observers.empty()) attach(observers);
  }

  template <class Op>
  void begin(const Op& op) noexcept {
    if (observers_) show_begin(op);
    begin_ = tracing::process_ring().record({.time_ns = tracing::now_ns(),
                                             .thread = tracing::kernel_thread_id(),
                                             .phase = tracing::EventPhase::kBegin,
                                             .op = record});
  }
  void mark_started() const noexcept {
    tracing::process_ring().mark_started(begin_, tracing::now_ns());
    show_start();
  }
  // Shows the start to the observers alone; for the ring, the operation was not queued.
  void show_start() const noexcept {
    for_each_observer([](auto& observer, uint64_t token) { observer.on_start(token); });
  }
  // `error`: null if the operation succeeded.
  void end(const std::exception_ptr& error = nullptr) const noexcept {
    for_each_observer(
        [&](auto& observer, uint64_t token) { observer.on_end(token, record, !error); });
    tracing::process_ring().record({.time_ns = tracing::now_ns(),
                                    .thread = tracing::kernel_thread_id(),
                                    .phase = tracing::EventPhase::kEnd,
                                    .ok = !error,
                                    .error = error_number(error),
                                    .op = record});
  }
  void end(const TorchWork& work) const noexcept {
    if (work.status() == WorkStatus::COMPLETED) return end();
    show_start();
    auto error = work.error();
    if (!error)
      error = std::make_exception_ptr(std::runtime_error("the operation failed without an error"));
    end(error);
  }

  base::OpRecord record;

 private:
  void attach(const ObserverList& observers) {
    observers_ = observers.snapshot();
    tokens_.reserve(observers_->size());
  }
  void show_begin(const Operation& op) noexcept {
    for (const auto& [id, observer] : *observers_)
      tokens_.push_back(observer->on_begin(record, op));
  }
  template <class Call>
  void for_each_observer(const Call& call) const noexcept {
    for (size_t i = 0; i < tokens_.size(); ++i) call(*(*observers_)[i].second, tokens_[i]);
  }

  uint64_t begin_ = 0;  // the number of the begin event
  // The observers that saw the begin, and the token of each; null and empty if there are none.
  std::shared_ptr<const ObserverList::Entries> observers_;
  c10::SmallVector<uint64_t, 2> tokens_;
};

}  // namespace torch::comms
