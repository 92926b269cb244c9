#include "ctran/window/window_exchange.hpp"

#include <algorithm>
#include <optional>

#include "base/text/utf8.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/window/window.hpp"
#include "transport/byte_stream.hpp"

namespace torch::comms::ctran {
namespace {

using transport::MemoryHandle;
using transport::Transport;

// Bytes of a rank's blob. The size is fixed, so that one all_gather suffices.
constexpr size_t kBlobBytes = 512;
constexpr uint8_t kNoErrorCode = UINT8_MAX;  // instead of an error code

// What each member reports to each other member about that member's memory.
enum class PeerAccess : uint8_t { kDirect, kNeedsProgress, kUnmappable };

}  // namespace

void run_collective(EngineGroup& group, const EngineCall& call) {
  auto work = group.start(call);
  try {
    work.wait();
  } catch (const CommError&) {
    throw;
  } catch (...) {
    // The call uses the caller's memory, so it must complete first.
    group.abort(std::string(call.name) + " was interrupted");
    work.wait_for(kNoTimeout);
    throw;
  }
}

WindowExchange::WindowExchange(EngineGroup& group, const GroupState& membership,
                               std::string_view name, const CallTimeout& limit)
    : group_(group),
      state_(membership),
      engine_(*membership.engine),
      name_(name),
      deadline_(deadline_after(limit.duration)),
      timeout_setting_(limit.setting),
      registrations_(membership.engine) {
  peer_windows_->rank = group.rank();
  peer_windows_->windows.resize(static_cast<size_t>(group.size()));
  for (int rank = 0; rank < group.size(); ++rank)
    peer_windows_->windows[static_cast<size_t>(rank)].context_rank = group.context_rank(rank);
}

CommError WindowExchange::error(Errc code, const std::string& why, int peer) const {
  const std::string who = peer == group_.rank() ? "" : "rank " + std::to_string(peer) + ": ";
  return {code,
          who + why,
          {.op = std::string(name_), .comm = group_.name(), .rank = group_.rank(), .peer = peer}};
}

CallTimeout WindowExchange::remaining() const {
  if (deadline_ == Deadline::max()) return {kNoTimeout, timeout_setting_};
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
  return {std::max(left, std::chrono::milliseconds(1)), timeout_setting_};
}

void WindowExchange::run(Bytes local_memory, uint64_t slots, const std::string& metadata) {
  peer_windows_->local_memory = local_memory;
  std::string blobs;
  all_gather(register_and_serialize(slots, metadata), blobs);
  parse_peers(blobs);
  import_peers();
}

// Registers this rank's memory with every link that reaches a member, and returns this rank's blob.
std::string WindowExchange::register_and_serialize(uint64_t slots, const std::string& metadata) {
  const auto write = [&](std::optional<Errc> failed, std::string_view text, uint64_t bytes,
                         uint64_t has_slots,
                         const std::vector<std::pair<Transport*, WindowMemoryHandles>>& links) {
    transport::ByteWriter writer;
    writer.add(failed ? static_cast<uint8_t>(*failed) : kNoErrorCode);
    writer.text(base::utf8_prefix(text, Window::kMaxMetadataBytes)).add(bytes).add(has_slots);
    writer.add(static_cast<uint8_t>(links.size()));
    for (const auto& [link, handles] : links)
      writer.text(link->name())
          .text(serialize(handles.memory))
          .text(serialize(handles.signal_words));
    auto blob = writer.release();
    TC_CHECK(blob.size() <= kBlobBytes);
    blob.resize(kBlobBytes);
    return blob;
  };
  try {
    peer_windows_->signal_words = std::make_shared<SharedMemoryBlock>(
        PeerWindows::signal_bytes(peer_windows_->windows.size(), slots));
    std::vector<std::pair<Transport*, WindowMemoryHandles>> links;
    const EngineLock lock(engine_);
    state_.require_usable(name_);
    for (auto& member : peer_windows_->windows) {
      if (&member == &peer_windows_->windows[static_cast<size_t>(peer_windows_->rank)]) continue;
      member.link = &engine_.link_to(member.context_rank);
      const auto same = [&](const auto& entry) { return entry.first == member.link; };
      if (std::any_of(links.begin(), links.end(), same)) continue;
      links.push_back({member.link,
                       {registrations_.add(*member.link, peer_windows_->local_memory),
                        registrations_.add(*member.link, peer_windows_->signal_words->bytes())}});
    }
    peer_windows_->is_local_shared = std::any_of(links.begin(), links.end(), [](const auto& entry) {
      return entry.second.memory.descriptor >= 0;
    });
    return write(std::nullopt, metadata, peer_windows_->local_memory.size(), slots, links);
  } catch (const CommError& e) {
    return write(e.code(), e.why(), 0, 0, {});
  } catch (const std::bad_alloc&) {
    return write(Errc::kResourceExhausted, "out of host memory", 0, 0, {});
  }
}

void WindowExchange::all_gather(std::string_view blob, std::string& blobs) {
  blobs.resize(blob.size() * peer_windows_->windows.size());
  const auto input = std::as_bytes(std::span(blob));
  const auto output = std::as_writable_bytes(std::span(blobs));
  run_collective(
      group_, {.name = name_,
               .operation = schedule::Operation::kAllGather,
               .blocks = schedule::Blocks::equal(static_cast<int64_t>(blob.size()), group_.size()),
               .input = {&input, 1},
               .output = {&output, 1},
               .timeout = remaining()});
}

void WindowExchange::parse_peers(std::string_view blobs) {
  handles_.resize(peer_windows_->windows.size());
  for (size_t i = 0; i < peer_windows_->windows.size(); ++i) {
    auto& member = peer_windows_->windows[i];
    transport::ByteReader reader(blobs.substr(i * kBlobBytes, kBlobBytes),
                                 "window metadata of a rank");
    const auto failed = reader.number<uint8_t>();
    member.metadata = reader.text();
    if (failed != kNoErrorCode)
      throw error(static_cast<Errc>(failed), member.metadata, static_cast<int>(i));
    member.bytes = reader.number<uint64_t>();
    member.slots = reader.number<uint64_t>();
    bool found = member.link == nullptr;
    for (auto count = reader.number<uint8_t>(); count > 0; --count) {
      const auto link = reader.text();
      const auto memory = reader.text(), signal_words = reader.text();
      if (member.link == nullptr || link != member.link->name()) continue;
      handles_[i] = {transport::parse_memory_handle(memory),
                     transport::parse_memory_handle(signal_words)};
      found = true;
    }
    reader.require(found, "no memory handle for the link that reaches the rank");
  }
}

void WindowExchange::import_peers() {
  std::vector<PeerAccess> reported(peer_windows_->windows.size(), PeerAccess::kDirect),
      received = reported;
  std::string why;
  try {
    const EngineLock lock(engine_);
    state_.require_usable(name_);
    for (size_t i = 0; i < reported.size(); ++i) {
      auto& member = peer_windows_->windows[i];
      if (member.link == nullptr) continue;
      member.memory = member.link->import(handles_[i].memory);
      member.signal_words = member.link->import(handles_[i].signal_words);
      if (!member.is_passive_target()) reported[i] = PeerAccess::kNeedsProgress;
    }
  } catch (const CommError& e) {
    why = ": " + e.why();
    std::fill(reported.begin(), reported.end(), PeerAccess::kUnmappable);
  }
  all_to_all(std::as_bytes(std::span(reported)), std::as_writable_bytes(std::span(received)));
  for (size_t i = 0; i < received.size(); ++i) {
    if (received[i] == PeerAccess::kUnmappable)
      throw error(Errc::kResourceExhausted, "cannot map the window memory of the peers" + why,
                  static_cast<int>(i));
    needs_target_progress_ |= received[i] == PeerAccess::kNeedsProgress;
  }
}

void WindowExchange::all_to_all(ConstBytes sent, Bytes received) {
  const auto blocks = schedule::Blocks::equal(1, group_.size());
  run_collective(group_, {.name = name_,
                          .operation = schedule::Operation::kAllToAll,
                          .blocks = blocks,
                          .arriving = blocks,
                          .input = {&sent, 1},
                          .output = {&received, 1},
                          .timeout = remaining()});
}

}  // namespace torch::comms::ctran
