#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/engine/task/task.hpp"

// Streams of tagged messages. Each tag that a rank sends with in a group has a stream of its own,
// so that tags never wait for each other. The sender takes the stream from a range that no other
// rank uses, and announces it to each receiver before its first message.
namespace torch::comms::ctran {
namespace {

constexpr uint32_t kFirstTagStream = uint32_t{1} << 31;

}  // namespace

uint32_t Engine::stream_to(GroupState& group, int rank, int tag) {
  auto& tags = group.tag_streams;
  auto stream = tags.to.find(tag);
  if (stream == tags.to.end()) {
    const uint32_t most = kFirstTagStream / static_cast<uint32_t>(links_.size());
    if (tag_streams_ == most)
      throw CommError(Errc::kResourceExhausted,
                      "this process has used all " + std::to_string(most) +
                          " streams for tagged messages, one for each tag of each communicator; "
                          "use fewer different tags");
    const uint32_t first = kFirstTagStream + static_cast<uint32_t>(links_.rank()) * most;
    stream = tags.to.emplace(tag, first + tag_streams_++).first;
  }
  if (!tags.announced.emplace(rank, tag).second) return stream->second;
  const int peer = group.ranks[static_cast<size_t>(rank)];
  const ControlMessage notice{.kind = ControlMessage::Kind::kTagStream,
                              .base = group.base,
                              .subject = tag,
                              .sequence = stream->second};
  if (peer == links_.rank()) {
    on_tag_stream(group, rank, notice);
  } else {
    link_to(peer);
    send_control(peer, notice);
  }
  return stream->second;
}

std::optional<uint32_t> Engine::stream_from(const GroupState& group, int rank, int tag) const {
  const auto stream = group.tag_streams.from.find({rank, tag});
  return stream == group.tag_streams.from.end() ? std::nullopt : std::optional(stream->second);
}

void Engine::on_tag_stream(GroupState& group, int rank, const ControlMessage& notice) {
  group.tag_streams.from[{rank, notice.subject}] = static_cast<uint32_t>(notice.sequence);
  // In the order of their calls, before any later call.
  for (auto* task : active_)
    if (task->group.get() == &group) task->on_tag_stream_known();
}

// Drops what arrives on the stream.
void Engine::close_stream(uint32_t stream, Errc code) noexcept {
  for (auto* link : links_.active()) link->close_streams(stream, stream, code);
}

void Engine::close_tag_streams(GroupState& group, Errc code) noexcept {
  for (const auto& [tag, stream] : group.tag_streams.to) close_stream(stream, code);
  for (const auto& [from, stream] : group.tag_streams.from) close_stream(stream, code);
  group.tag_streams = {};
}

}  // namespace torch::comms::ctran
