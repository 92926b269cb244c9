#include "ctran/engine/task/messages_task.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "base/net/peer_error_text.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"

namespace torch::comms::ctran {

using schedule::Operation;

void MessagesTask::prepare(std::span<const EngineCall> calls, int rank, int size) {
  const auto wrong = [&](const EngineCall& call, const std::string& why) {
    return CommError(Errc::kInvalidArgument, why, {.op = std::string(call.name), .rank = rank});
  };
  while (items_.size() < calls.size()) items_.emplace_back();
  count_ = 0;
  source = kAnySource;
  for (const auto& call : calls) {
    auto& item = items_[count_];
    if (call.operation != Operation::kSend && call.operation != Operation::kReceive)
      throw wrong(call, "a batch may contain only sends and receives");
    const bool any_source = call.root == kAnySource && call.operation == Operation::kReceive;
    if (!any_source && (call.root < 0 || call.root >= size))
      throw wrong(call, "peer " + std::to_string(call.root) + " is outside [0, " +
                            std::to_string(size) + ")");
    item.is_send = call.operation == Operation::kSend;
    item.peer = call.root;
    if (item.is_send)
      item.memory.assign(call.input);
    else
      item.memory.assign(call.output);
    const auto bytes = static_cast<uint64_t>(call.blocks.total()) * call.element_bytes;
    if (item.memory.bytes() != bytes)
      throw wrong(call, "the buffer has " + std::to_string(item.memory.bytes()) +
                            " bytes, but the call needs " + std::to_string(bytes) + " bytes");
    const uint64_t type_key = (uint64_t{call.dtype} << 32) + call.element_bytes;
    item.signature = static_cast<uint32_t>(hash_bytes(&type_key, sizeof type_key));
    item.tag = call.tag;
    item.is_posted = false;
    ++count_;
  }
}

Task::TaskStatus MessagesTask::begin() {
  finished_ = 0;
  group->record_p2p_started(p2p_call());
  for (const bool sends : {false, true})
    for (size_t i = 0; i < count_; ++i)
      if (items_[i].is_send == sends) post(items_[i]);
  return advance();
}

std::optional<uint32_t> MessagesTask::stream_from(int rank, int tag) const {
  if (tag == 0) return group->base + GroupState::kMessages;
  return group->engine->stream_from(*group, rank, tag);
}

void MessagesTask::match_any_source(BatchedMessage& item) {
  const auto& ranks = group->ranks;
  const int size = static_cast<int>(ranks.size());
  for (int i = 1; i <= size; ++i) {
    const int rank = (group->layout.rank + i) % size;
    const auto stream = stream_from(rank, item.tag);
    if (!stream) continue;
    const int peer = ranks[static_cast<size_t>(rank)];
    if (!group->engine->link_to(peer).has_message(peer, *stream)) continue;
    item.peer = source = rank;
    return post_on_stream(*stream, item);
  }
}

void MessagesTask::post(BatchedMessage& item) {
  if (item.peer == kAnySource) {
    // So that the message can be announced.
    for (const int member : group->ranks) group->engine->link_to(member);
    return match_any_source(item);
  }
  auto& engine = *group->engine;
  if (item.tag == 0) return post_on_stream(group->base + GroupState::kMessages, item);
  if (item.is_send) return post_on_stream(engine.stream_to(*group, item.peer, item.tag), item);
  // Without a known stream, the link is connected so that the sender can announce the tag.
  if (const auto stream = engine.stream_from(*group, item.peer, item.tag))
    post_on_stream(*stream, item);
  else
    engine.link_to(group->ranks[static_cast<size_t>(item.peer)]);
}

void MessagesTask::on_tag_stream_known() {
  for (size_t i = 0; i < count_; ++i) {
    auto& item = items_[i];
    if (item.is_posted || item.is_send || item.peer == kAnySource) continue;
    if (const auto stream = group->engine->stream_from(*group, item.peer, item.tag))
      post_on_stream(*stream, item);
  }
}

void MessagesTask::post_on_stream(uint32_t stream, BatchedMessage& item) {
  item.is_posted = true;
  const int peer = group->ranks[static_cast<size_t>(item.peer)];
  auto& link = group->engine->link_to(peer);
  const auto pieces = item.memory.pieces();
  if (item.is_send) {
    item.from.assign(pieces.begin(), pieces.end());
    if (pieces.size() == 1)
      link.send(item.request, peer, stream, ConstBytes(pieces[0]), item.signature);
    else
      link.send(item.request, peer, stream, std::span<const ConstBytes>(item.from), item.signature);
  } else if (pieces.size() == 1) {
    link.receive(item.request, peer, stream, pieces[0], item.signature);
  } else {
    link.receive(item.request, peer, stream, pieces, item.signature);
  }
}

bool MessagesTask::can_still_send() const noexcept {
  return std::any_of(
      items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count_),
      [](const BatchedMessage& item) { return item.is_send && !item.request.is_announced(); });
}

bool MessagesTask::can_still_receive() const noexcept {
  return std::any_of(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count_),
                     [](const BatchedMessage& item) { return !item.is_send && !item.done(); });
}

bool MessagesTask::is_draining() const noexcept {
  return std::any_of(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count_),
                     [&](const BatchedMessage& item) {
                       if (item.done() || item.peer == kAnySource) return false;
                       const auto* leave = group->leave_of(item.peer);
                       return leave != nullptr &&
                              (item.is_send ? leave->has_open_receives
                                            : item.is_posted && item.request.has_begun());
                     });
}

// The peer has left the group before it posted its side of this message. For any source: all other
// members have left, and match_any_source() has just found no message of theirs.
bool MessagesTask::can_never_complete(const BatchedMessage& item) const {
  if (item.peer == kAnySource) return group->left_members.size() + 1 >= group->ranks.size();
  const auto* leave = group->leave_of(item.peer);
  if (leave == nullptr) return false;
  if (item.is_send) return !leave->has_open_receives;
  // A message with an unknown tag would have been announced before.
  return !item.is_posted || !item.request.has_begun();
}

// The peer has left the group, and the link has failed since.
bool MessagesTask::has_lost_link(const BatchedMessage& item) const {
  return item.done() && !item.request.is_ok() && item.request.error() == Errc::kPeerFailed &&
         group->left_members.contains(item.peer);
}

// Fails only this call. The group continues: messages that the peer had sent before may still be
// received.
Task::TaskStatus MessagesTask::fail_locally(const BatchedMessage& first) {
  int left_rank = first.peer;
  if (left_rank == kAnySource)
    left_rank =
        group->left_members.empty() ? group->layout.rank : group->left_members.begin()->first;
  failure = {left_rank, Errc::kPeerFailed};
  failure.reason =
      first.is_send ? base::no_more_receives_text(left_rank) : base::no_more_sends_text(left_rank);
  if (left_rank == group->layout.rank)
    failure = {left_rank, Errc::kFinalized,
               "the communicator was closed while " + std::string(name) + " waited"};
  is_local_failure = group->has_failed_for_leave = true;
  for (size_t i = finished_; i < count_; ++i) {
    auto& item = items_[i];
    if (!item.is_posted || item.request.is_done()) continue;
    const int peer = group->ranks[static_cast<size_t>(item.peer)];
    group->engine->link_to(peer).cancel(item.request, failure.code);
  }
  return TaskStatus::kFailed;
}

Task::TaskStatus MessagesTask::advance() {
  bool all = true, open = false;
  const BatchedMessage* stuck = nullptr;
  for (size_t i = finished_; i < count_; ++i) {
    auto& item = items_[i];
    if (item.peer == kAnySource) match_any_source(item);
    if (!item.done()) {
      all = false;
      if (group->left_members.empty() && !group->has_announced_leave) continue;
      if (!can_never_complete(item))
        open = true;
      else if (stuck == nullptr)
        stuck = &item;
      continue;
    }
    if (has_lost_link(item)) {
      all = false;
      if (stuck == nullptr) stuck = &item;
      continue;
    }
    const bool fits = item.is_send || item.request.bytes() == item.memory.bytes();
    if (item.request.is_ok() && fits) {
      if (all) finished_ = i + 1;
      continue;
    }
    failure = {item.peer, item.request.is_ok() ? Errc::kMismatch : item.request.error()};
    if (failure.code == Errc::kMismatch) failure.reason = describe_mismatch(item);
    return TaskStatus::kFailed;
  }
  if (stuck != nullptr && !open) return fail_locally(*stuck);
  return all ? TaskStatus::kDone : TaskStatus::kInProgress;
}

std::string MessagesTask::describe_mismatch(const BatchedMessage& item) {
  const auto mine = item.memory.bytes(), theirs = item.request.bytes();
  const std::string bytes = std::to_string(mine) + " bytes matches a ";
  if (item.is_send) return "a send of " + bytes + "receive of another size or dtype";
  return "a receive of " + bytes + "send of " +
         (mine == theirs ? "another dtype" : std::to_string(theirs) + " bytes");
}

std::string MessagesTask::format_pending() const {
  std::string text;
  for (size_t i = finished_; i < count_; ++i) {
    const auto& item = items_[i];
    if (item.done()) continue;
    text += (text.empty() ? "" : ", ") + std::string(item.is_send ? "to " : "from ") +
            (item.peer == kAnySource ? "any rank" : "rank " + std::to_string(item.peer));
    if (item.tag != 0) text += " with tag " + std::to_string(item.tag);
    if (text.size() > 200) return text + ", ...";
  }
  return "still missing: messages " + text;
}

std::vector<int> MessagesTask::awaited_ranks() const {
  std::set<int> peers;
  for (size_t i = finished_; i < count_; ++i)
    if (!items_[i].done() && items_[i].peer != kAnySource) peers.insert(items_[i].peer);
  return {peers.begin(), peers.end()};
}

monitor::NonCollectiveCall MessagesTask::p2p_call() const noexcept {
  monitor::NonCollectiveCall call{.messages = count_};
  name.copy(call.name, sizeof call.name - 1);
  for (size_t i = 0; i < count_; ++i) {
    call.bytes += items_[i].memory.bytes();
    call.sends += items_[i].is_send ? 1 : 0;
  }
  if (count_ == 1) call.peer = items_[0].peer;
  return call;
}

std::string MessagesTask::format_call() const { return p2p_call().format(); }

}  // namespace torch::comms::ctran
