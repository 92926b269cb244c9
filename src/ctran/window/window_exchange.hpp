#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "ctran/engine/group/engine_group.hpp"
#include "ctran/window/peer_windows.hpp"
#include "ctran/window/window_registrations.hpp"

namespace torch::comms::ctran {

class GroupState;

// Opens a window: the members exchange the handles of their memory, import the memory of all
// others, and report to each other whose progress they need.
class WindowExchange {
 public:
  WindowExchange(EngineGroup& group, const GroupState& membership, std::string_view name,
                 const CallTimeout& limit);

  // Runs the exchange. Collective.
  // Throws: CommError, on all members if one member has failed.
  void run(Bytes local_memory, uint64_t slots, const std::string& metadata);

  std::shared_ptr<PeerWindows> release_peer_windows() { return std::move(peer_windows_); }
  WindowRegistrations release_registrations() { return std::move(registrations_); }
  // Returns: whether some member can reach this rank's memory only while this rank makes progress.
  bool needs_target_progress() const noexcept { return needs_target_progress_; }

 private:
  std::string register_and_serialize(uint64_t slots, const std::string& metadata);
  void parse_peers(std::string_view blobs);
  void import_peers();
  void all_gather(std::string_view blob, std::string& blobs);
  void all_to_all(ConstBytes sent, Bytes received);
  CallTimeout remaining() const;
  CommError error(Errc code, const std::string& why, int peer) const;

  EngineGroup& group_;
  const GroupState& state_;
  Engine& engine_;
  std::string_view name_;
  transport::Deadline deadline_;
  std::string_view timeout_setting_;  // the user's name for the timeout
  std::shared_ptr<PeerWindows> peer_windows_ = std::make_shared<PeerWindows>();
  WindowRegistrations registrations_;
  struct WindowMemoryHandles {
    transport::MemoryHandle memory, signal_words;
  };
  std::vector<WindowMemoryHandles> handles_;  // by rank
  bool needs_target_progress_ = false;
};

// Runs a collective to its end. An exception that interrupts the wait fails the group.
void run_collective(EngineGroup& group, const EngineCall& call);

}  // namespace torch::comms::ctran
