#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"
#include "ctran/engine/task.hpp"

// Messages with tags. Each tag that a rank sends with, in a group, has a stream of its own, so that
// tags never wait for each other. The sender takes the number from a range that no other rank takes
// from, and tells each receiver before its first message.
namespace torch::comms::ctran {
namespace {

constexpr uint32_t kFirstTagStream = uint32_t{1} << 31;

}  // namespace

uint32_t Engine::stream_to(Membership& group, int rank, int tag) {
  auto& tags = group.tags;
  auto stream = tags.to.find(tag);
  if (stream == tags.to.end()) {
    const uint32_t most = kFirstTagStream / static_cast<uint32_t>(links_.size());
    if (tag_streams_ == most)
      throw CommError(Errc::kResourceExhausted,
                      "this process has sent with " + std::to_string(most) + " different tags");
    const uint32_t first = kFirstTagStream + static_cast<uint32_t>(links_.rank()) * most;
    stream = tags.to.emplace(tag, first + tag_streams_++).first;
  }
  if (!tags.told.emplace(rank, tag).second) return stream->second;
  const int peer = group.ranks[static_cast<size_t>(rank)];
  const Notice notice{
      .kind = Notice::Kind::kTagged, .base = group.base, .about = tag, .sequence = stream->second};
  if (peer == links_.rank()) {
    on_tagged(group, rank, notice);
  } else {
    reach(peer);
    send_notice(peer, notice);
  }
  return stream->second;
}

std::optional<uint32_t> Engine::stream_from(const Membership& group, int rank, int tag) const {
  const auto stream = group.tags.from.find({rank, tag});
  return stream == group.tags.from.end() ? std::nullopt : std::optional(stream->second);
}

void Engine::on_tagged(Membership& group, int rank, const Notice& notice) {
  group.tags.from[{rank, notice.about}] = static_cast<uint32_t>(notice.sequence);
  // In the order of their calls, before any that comes now.
  for (auto* task : active_)
    if (task->group.get() == &group) task->on_stream_known();
}

// What comes over it has nobody to take it.
void Engine::close_stream(uint32_t stream, Errc code) noexcept {
  for (auto* link : links_.active()) link->close_streams(stream, stream, code);
}

void Engine::close_tags(Membership& group, Errc code) noexcept {
  for (const auto& [tag, stream] : group.tags.to) close_stream(stream, code);
  for (const auto& [from, stream] : group.tags.from) close_stream(stream, code);
  group.tags = {};
}

}  // namespace torch::comms::ctran
