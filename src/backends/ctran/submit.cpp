#include "backends/ctran/call_context.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "backends/ctran/ctran_options.hpp"
#include "backends/ctran/ctran_work.hpp"
#include "core/rendezvous/reconfiguration.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {

ctran::CallInfo TorchCommCtran::begin_call(std::string_view op, const OperationOptions& options) {
  const auto context = [&]() -> Context {
    return {.op = std::string(op), .comm = name_, .rank = rank_};
  };
  if (!session_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized", context());
  if (session_->connected_links.is_superseded->load(std::memory_order_relaxed))
    throw ctran::parent_reconfigured_error(context());
  if (reconfiguration_ && session_->group->poll_failure())
    if (const auto stale = reconfiguration_->check_excluded(context())) {
      announceAbort();
      throw CommError(*stale);
    }
  return {op, ctran::timeout_or_default_of(options.timeout, options_.timeout)};
}

ctran::CallInfo TorchCommCtran::begin_call(OpName op, const OperationOptions& options) {
  return begin_call(opToString(op), options);
}

CommError TorchCommCtran::handle_failure(const CommError& error) {
  const bool ended = session_->group->failure().has_value();
  if (ended) announceAbort();
  if (ended && reconfiguration_ && error.code() != Errc::kAborted)
    if (const auto stale = reconfiguration_->check_excluded(error.context())) return *stale;
  return error;
}

void TorchCommCtran::select_algorithm(ctran::EngineCall& call, const Hints& hints) const {
  if (hints.empty() && !algorithm_requests_->is_any_set()) return;
  const auto requests =
      ctran::parse_call_algorithm_requests(hints, call.operation, *algorithm_requests_);
  const auto request = requests.request_for(call.operation);
  if (request.algorithm.empty() && request.chunk_bytes < 0 && !requests.batch_invariant) return;
  const auto& placement = session_->placement;
  const auto& inputs = *session_->connected_links.selection_inputs;
  const schedule::Problem problem{
      .operation = call.operation,
      .rank = rank_,
      .size = size_,
      .root = call.root,
      .blocks = call.blocks,
      .receive_blocks = call.arriving,
      .options = {.local_size = placement.local_size, .rank_order = requests.batch_invariant}};
  const auto chosen =
      ctran::select_algorithm(problem, {.bytes = call.element_bytes},
                              topology_facts_of(inputs, placement.is_one_host, size_),
                              inputs.shared_tuning.tuning, request);
  call.algorithm = chosen.algorithm;
  call.chunk = chosen.chunk;
}

void TorchCommCtran::consistency_barrier(ctran::EngineCall& call, bool async_op) {
  auto check = call;
  check.is_consistency_check = true;
  auto& group = *session_->group;
  if (async_op) {
    group.start(check);  // the call is queued behind it and fails with it
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  try {
    group.run(check);
  } catch (const Interrupted&) {
    // The check and the call behind it continue without the caller, because all ranks count both.
    if (!group.failure()) group.start(call);
    throw;
  }
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  call.timeout.elapsed = std::min(elapsed, call.timeout.duration - std::chrono::milliseconds(1));
}

WorkPtr TorchCommCtran::submit(const ctran::CallInfo& issue, const OperationOptions& options,
                               bool async_op, ctran::EngineCall& call,
                               const ctran::OperandBuffers& operands) {
  call.name = issue.op;
  call.input = operands.input();
  call.output = operands.output();
  call.timeout = issue.timeout;
  select_algorithm(call, options.hints);
  auto& group = *session_->group;
  if (async_op)
    return ctran::CtranWork::start(issue, *session_, operands.storages(),
                                   [&](ctran::CompletionListener* listener) {
                                     if (is_call_check_enabled_)
                                       consistency_barrier(call, /*async_op=*/true);
                                     return group.start(call, listener);
                                   });
  try {
    if (is_call_check_enabled_) consistency_barrier(call, /*async_op=*/false);
    group.run(call);
  } catch (const Interrupted& e) {
    session_->retain_storage(operands.storages());
    e.rethrow_cause();
  } catch (const CommError& e) {
    throw handle_failure(e);
  }
  return completedWork();
}

}  // namespace torch::comms
