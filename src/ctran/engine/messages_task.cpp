#include "ctran/engine/messages_task.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "base/peer_error_text.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"

namespace torch::comms::ctran {

using schedule::Operation;

void MessagesTask::prepare(std::span<const Call> calls, int rank, int size) {
  const auto wrong = [&](const Call& call, const std::string& why) {
    return CommError(Errc::kInvalidArgument, why, {.op = std::string(call.name), .rank = rank});
  };
  while (items_.size() < calls.size()) items_.emplace_back();
  count_ = 0;
  source = kAnybody;
  for (const auto& call : calls) {
    auto& item = items_[count_];
    if (call.operation != Operation::kSend && call.operation != Operation::kReceive)
      throw wrong(call, "a batch holds sends and receives alone");
    const bool anybody = call.root == kAnybody && call.operation == Operation::kReceive;
    if (!anybody && (call.root < 0 || call.root >= size))
      throw wrong(call, "peer " + std::to_string(call.root) + " is outside [0, " +
                            std::to_string(size) + ")");
    item.sends = call.operation == Operation::kSend;
    item.peer = call.root;
    if (item.sends)
      item.memory.assign(call.input);
    else
      item.memory.assign(call.output);
    const auto bytes = static_cast<uint64_t>(call.blocks.total()) * call.element_bytes;
    if (item.memory.bytes() != bytes)
      throw wrong(call, "a buffer of " + std::to_string(item.memory.bytes()) + " bytes, but " +
                            std::to_string(bytes) + " are needed");
    const uint64_t meaning = (uint64_t{call.dtype} << 32) + call.element_bytes;
    item.meaning = static_cast<uint32_t>(hash_bytes(&meaning, sizeof meaning));
    item.tag = call.tag;
    item.posted = false;
    ++count_;
  }
}

Task::Outcome MessagesTask::begin() {
  finished_ = 0;
  group->note_begun(aside());
  for (const bool sends : {false, true})
    for (size_t i = 0; i < count_; ++i)
      if (items_[i].sends == sends) post(items_[i]);
  return advance();
}

std::optional<uint32_t> MessagesTask::stream_from(int rank, int tag) const {
  if (tag == 0) return group->base + Membership::kMessages;
  return group->engine->stream_from(*group, rank, tag);
}

void MessagesTask::take_one(Item& item) {
  const auto& ranks = group->ranks;
  const int size = static_cast<int>(ranks.size());
  for (int i = 1; i <= size; ++i) {
    const int rank = (group->place.rank + i) % size;
    const auto stream = stream_from(rank, item.tag);
    if (!stream) continue;
    const int peer = ranks[static_cast<size_t>(rank)];
    if (!group->engine->reach(peer).has_message(peer, *stream)) continue;
    item.peer = source = rank;
    return post_on(*stream, item);
  }
}

void MessagesTask::post(Item& item) {
  if (item.peer == kAnybody) {
    for (const int member : group->ranks) group->engine->reach(member);  // to hear of it
    return take_one(item);
  }
  auto& engine = *group->engine;
  if (item.tag == 0) return post_on(group->base + Membership::kMessages, item);
  if (item.sends) return post_on(engine.stream_to(*group, item.peer, item.tag), item);
  if (const auto stream = engine.stream_from(*group, item.peer, item.tag))
    post_on(*stream, item);
  else
    engine.reach(group->ranks[static_cast<size_t>(item.peer)]);  // to hear of it
}

void MessagesTask::on_stream_known() {
  for (size_t i = 0; i < count_; ++i) {
    auto& item = items_[i];
    if (item.posted || item.sends || item.peer == kAnybody) continue;
    if (const auto stream = group->engine->stream_from(*group, item.peer, item.tag))
      post_on(*stream, item);
  }
}

void MessagesTask::post_on(uint32_t stream, Item& item) {
  item.posted = true;
  const int peer = group->ranks[static_cast<size_t>(item.peer)];
  auto& link = group->engine->reach(peer);
  const auto pieces = item.memory.pieces();
  if (item.sends) {
    item.from.assign(pieces.begin(), pieces.end());
    if (pieces.size() == 1)
      link.send(item.request, peer, stream, ConstBytes(pieces[0]), item.meaning);
    else
      link.send(item.request, peer, stream, std::span<const ConstBytes>(item.from), item.meaning);
  } else if (pieces.size() == 1) {
    link.receive(item.request, peer, stream, pieces[0], item.meaning);
  } else {
    link.receive(item.request, peer, stream, pieces, item.meaning);
  }
}

bool MessagesTask::may_send() const noexcept {
  return std::any_of(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count_),
                     [](const Item& item) { return item.sends && !item.request.is_announced(); });
}

bool MessagesTask::may_receive() const noexcept {
  return std::any_of(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count_),
                     [](const Item& item) { return !item.sends && !item.done(); });
}

bool MessagesTask::is_draining() const noexcept {
  return std::any_of(
      items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count_), [&](const Item& item) {
        if (item.done() || item.peer == kAnybody) return false;
        const auto* departure = group->departure(item.peer);
        return departure != nullptr &&
               (item.sends ? departure->receives : item.posted && item.request.has_begun());
      });
}

// The peer has closed the group before it came to this message. Of any: all others have, and
// receive_one() has just found nothing of theirs.
bool MessagesTask::is_hopeless(const Item& item) const {
  if (item.peer == kAnybody) return group->departed.size() + 1 >= group->ranks.size();
  const auto* departure = group->departure(item.peer);
  if (departure == nullptr) return false;
  if (item.sends) return !departure->receives;
  // One whose tag is unknown would have been announced before.
  return !item.posted || !item.request.has_begun();
}

// Its peer has closed the group, and the link has ended since.
bool MessagesTask::is_lost(const Item& item) const {
  return item.done() && !item.request.is_ok() && item.request.error() == Errc::kPeerFailed &&
         group->departed.contains(item.peer);
}

// The group goes on: messages that the peer had sent before may still be received.
Task::Outcome MessagesTask::give_up(const Item& first) {
  int gone = first.peer;
  if (gone == kAnybody)
    gone = group->departed.empty() ? group->place.rank : group->departed.begin()->first;
  failed = {gone, Errc::kPeerFailed};
  failed.why = first.sends ? base::no_more_receives_text(gone) : base::no_more_sends_text(gone);
  if (gone == group->place.rank)
    failed = {gone, Errc::kFinalized, "the communicator was closed while this waited"};
  fails_alone = group->met_departure = true;
  for (size_t i = finished_; i < count_; ++i) {
    auto& item = items_[i];
    if (!item.posted || item.request.is_done()) continue;
    const int peer = group->ranks[static_cast<size_t>(item.peer)];
    group->engine->reach(peer).cancel(item.request, failed.code);
  }
  return Outcome::kFailed;
}

Task::Outcome MessagesTask::advance() {
  bool all = true, open = false;
  const Item* hopeless = nullptr;
  for (size_t i = finished_; i < count_; ++i) {
    auto& item = items_[i];
    if (item.peer == kAnybody) take_one(item);
    if (!item.done()) {
      all = false;
      if (group->departed.empty() && !group->left) continue;
      if (!is_hopeless(item))
        open = true;
      else if (hopeless == nullptr)
        hopeless = &item;
      continue;
    }
    if (is_lost(item)) {
      all = false;
      if (hopeless == nullptr) hopeless = &item;
      continue;
    }
    const bool fits = item.sends || item.request.bytes() == item.memory.bytes();
    if (item.request.is_ok() && fits) {
      if (all) finished_ = i + 1;
      continue;
    }
    failed = {item.peer, item.request.is_ok() ? Errc::kMismatch : item.request.error()};
    if (failed.code == Errc::kMismatch) failed.why = difference(item);
    return Outcome::kFailed;
  }
  if (hopeless != nullptr && !open) return give_up(*hopeless);
  return all ? Outcome::kDone : Outcome::kMore;
}

std::string MessagesTask::difference(const Item& item) {
  const auto mine = item.memory.bytes(), theirs = item.request.bytes();
  const std::string bytes = std::to_string(mine) + " bytes met a ";
  if (item.sends) return "a send of " + bytes + "receive of another size or dtype";
  return "a receive of " + bytes + "send of " +
         (mine == theirs ? "another dtype" : std::to_string(theirs));
}

std::string MessagesTask::waits_for() const {
  std::string text;
  for (size_t i = finished_; i < count_; ++i) {
    const auto& item = items_[i];
    if (item.done()) continue;
    text += (text.empty() ? "" : ", ") + std::string(item.sends ? "to " : "from ") +
            (item.peer == kAnybody ? "any rank" : "rank " + std::to_string(item.peer));
    if (item.tag != 0) text += " with tag " + std::to_string(item.tag);
    if (text.size() > 200) return text + ", ...";
  }
  return "still missing: messages " + text;
}

std::vector<int> MessagesTask::awaited() const {
  std::set<int> peers;
  for (size_t i = finished_; i < count_; ++i)
    if (!items_[i].done() && items_[i].peer != kAnybody) peers.insert(items_[i].peer);
  return {peers.begin(), peers.end()};
}

monitor::NonCollectiveCall MessagesTask::aside() const noexcept {
  monitor::NonCollectiveCall aside{.messages = count_};
  name.copy(aside.name, sizeof aside.name - 1);
  for (size_t i = 0; i < count_; ++i) {
    aside.bytes += items_[i].memory.bytes();
    aside.sends += items_[i].sends ? 1 : 0;
  }
  if (count_ == 1) aside.peer = items_[0].peer;
  return aside;
}

std::string MessagesTask::words() const { return aside().format(); }

}  // namespace torch::comms::ctran
