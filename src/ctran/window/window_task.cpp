#include "ctran/window/window_task.hpp"

#include <cstring>
#include <set>

#include "base/net/peer_error_text.hpp"
#include "ctran/engine/group/group_state.hpp"

namespace torch::comms::ctran {

using transport::CounterOp;

namespace {

// Describes the operation for the progress reports of peers.
NonCollectiveCall p2p_call_of(const RmaOperation& operation) noexcept {
  using Kind = RmaOperation::Kind;
  NonCollectiveCall call;
  operation.name.copy(call.name, sizeof call.name - 1);
  if (operation.kind == Kind::kFlush || operation.kind == Kind::kWaitSlot) return call;
  call.peer = operation.rank;
  call.sends = operation.kind == Kind::kWaitSignal ? 0 : 1;
  call.messages = operation.kind == Kind::kPut ? 1 : 0;
  call.bytes = operation.from.size();
  return call;
}

}  // namespace

WindowTask::WindowTask(std::shared_ptr<const PeerWindows> peer_windows,
                       const RmaOperation& operation, uint64_t count)
    : peer_windows_(std::move(peer_windows)), operation_(operation), count_(count) {
  is_collective = is_queued = is_pooled = false;
  name = operation.name;
  timeout = operation.timeout;
  deadline = deadline_after(operation.timeout.duration);
  references_.store(2, std::memory_order_relaxed);
}

transport::Request& WindowTask::transfer(int rank) {
  auto& result = transfers_.emplace_back();
  result.rank = rank;
  return result.request;
}

Task::TaskStatus WindowTask::begin() {
  group->record_p2p_started(p2p_call_of(operation_));
  switch (operation_.kind) {
    case Kind::kPut: {
      const auto& to = target();
      const auto from = operation_.from;
      if (to.link != nullptr)
        to.link->put(transfer(operation_.rank), *to.memory, operation_.offset, from);
      else if (!from.empty())  // the ranges may overlap
        std::memmove(peer_windows_->local_memory.data() + operation_.offset, from.data(),
                     from.size());
      flush(operation_.rank);
      break;
    }
    case Kind::kSignal:
      update_word(PeerWindows::counter_offset(peer_windows_->rank), 1, CounterOp::kAdd);
      break;
    case Kind::kStore:
      update_word(peer_windows_->slot_offset(operation_.slot), operation_.value, CounterOp::kStore);
      break;
    case Kind::kFlush:
      for (size_t rank = 0; rank < peer_windows_->windows.size(); ++rank)
        flush(static_cast<int>(rank));
      break;
    case Kind::kWaitSignal:
    case Kind::kWaitSlot:
      break;
  }
  return advance();
}

void WindowTask::update_word(uint64_t offset, uint64_t amount, CounterOp op) {
  const auto& to = target();
  if (to.link == nullptr)
    transport::update_counter(peer_windows_->signal_words->bytes().data() + offset, amount, op);
  else
    to.link->signal(*to.signal_words, offset, amount, op);
  flush(operation_.rank);
}

// The flush completes at once if nothing was sent as frames.
void WindowTask::flush(int rank) {
  const auto& to = peer_windows_->windows[static_cast<size_t>(rank)];
  if (to.link != nullptr) to.link->flush(transfer(rank), to.context_rank);
}

Task::TaskStatus WindowTask::advance() {
  if (is_wait()) return poll_wait();
  auto outcome = TaskStatus::kDone;
  for (const auto& [rank, request] : transfers_) {
    if (!request.is_done()) {
      outcome = TaskStatus::kInProgress;
    } else if (!request.is_ok()) {
      failure = {rank, request.error()};
      failure.is_closed_by_peer = failure.code == Errc::kMismatch;
      if (failure.is_closed_by_peer)
        failure.reason = "rank " + std::to_string(rank) + " has closed its part of the window";
      return TaskStatus::kFailed;
    }
  }
  return outcome;
}

Task::TaskStatus WindowTask::poll_wait() {
  const bool is_slot = operation_.kind == Kind::kWaitSlot;
  // Read before the words, so that earlier signals count.
  const bool closed = peer_windows_->is_closed.load();
  const uint64_t seen = peer_windows_->read(is_slot ? peer_windows_->slot_offset(operation_.slot)
                                                    : PeerWindows::counter_offset(operation_.rank));
  if (is_slot ? compare_slot(operation_.comparison, seen, operation_.value) : seen >= count_)
    return TaskStatus::kDone;
  if (closed)
    return fail_locally(
        Errc::kInvalidArgument, operation_.rank,
        "the window was closed while " + std::string(name) + " waited; " + format_pending());
  const auto& left_members = group->left_members;
  if (left_members.empty() && !group->has_announced_leave) return TaskStatus::kInProgress;
  // From here on, checks whether any member is left that could end the wait.
  const bool all_peers_left = static_cast<int>(left_members.size()) == group->size() - 1;
  const bool is_own = is_slot ? left_members.empty() : operation_.rank == peer_windows_->rank;
  if (is_own && group->has_announced_leave && (all_peers_left || !is_slot))
    return fail_locally(Errc::kFinalized, peer_windows_->rank,
                        "the communicator was closed while " + std::string(name) + " waited");
  if (is_slot ? !all_peers_left : !left_members.contains(operation_.rank))
    return TaskStatus::kInProgress;
  const int peer = is_slot ? left_members.begin()->first : operation_.rank;
  if (group->has_announced_leave)
    return fail_locally(Errc::kPeerFailed, peer, base::peer_closed_text(peer));
  if (group->engine->is_draining(*group)) return TaskStatus::kInProgress;
  failure = {peer, Errc::kPeerFailed};
  return TaskStatus::kFailed;
}

Task::TaskStatus WindowTask::fail_locally(Errc code, int peer, std::string why) {
  is_local_failure = true;
  failure = {peer, code, std::move(why)};
  return TaskStatus::kFailed;
}

void WindowTask::close() noexcept {
  for (auto& [rank, request] : transfers_)
    if (!request.is_done())
      peer_windows_->windows[static_cast<size_t>(rank)].link->cancel(request, Errc::kAborted);
  operation_.from = {};
}

std::string WindowTask::format_pending() const {
  if (operation_.kind == Kind::kWaitSignal)
    return "rank " + std::to_string(operation_.rank) + " has signalled " +
           std::to_string(peer_windows_->read(PeerWindows::counter_offset(operation_.rank))) +
           " times, waiting for number " + std::to_string(count_);
  if (operation_.kind == Kind::kWaitSlot)
    return "slot " + std::to_string(operation_.slot) + " holds " +
           std::to_string(peer_windows_->read(peer_windows_->slot_offset(operation_.slot)));
  std::string text;
  for (const auto& [rank, request] : transfers_)
    if (!request.is_done() && text.size() < 200)
      text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return "not yet acknowledged by rank " + text;
}

std::vector<int> WindowTask::awaited_ranks() const {
  if (operation_.kind == Kind::kWaitSignal) return {operation_.rank};
  std::set<int> ranks;  // none for a slot, which any member may write
  for (const auto& [rank, request] : transfers_)
    if (!request.is_done()) ranks.insert(rank);
  return {ranks.begin(), ranks.end()};
}

std::string WindowTask::format_call() const {
  std::string text(name);
  if (operation_.kind == Kind::kFlush) return text;
  if (operation_.kind != Kind::kWaitSlot)
    return text + " with rank " + std::to_string(operation_.rank);
  constexpr const char* kSigns[] = {" == ", " >= ", " <= "};
  return text + " for slot " + std::to_string(operation_.slot) +
         kSigns[static_cast<size_t>(operation_.comparison)] + std::to_string(operation_.value);
}

}  // namespace torch::comms::ctran
