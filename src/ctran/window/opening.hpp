#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "ctran/engine/engine_group.hpp"
#include "ctran/window/reach.hpp"
#include "ctran/window/registrations.hpp"

namespace torch::comms::ctran {

class GroupState;

// How the members of a group open memory to each other: each tells all where its own is, maps what
// it can of theirs, and tells whom it needs to take its part.
class Opening {
 public:
  Opening(EngineGroup& group, const GroupState& membership, std::string_view name,
          const CallTimeout& limit);

  // Collective. Throws CommError, on all members where one could not.
  void meet(Bytes own, uint64_t slots, const std::string& note);

  std::shared_ptr<Reach> take_reach() { return std::move(reach_); }
  Registrations take_registrations() { return std::move(registrations_); }
  // Some member cannot reach this one's memory without this one's turns.
  bool is_served() const noexcept { return is_served_; }

 private:
  std::string tell(uint64_t slots, const std::string& note);
  void learn(std::string_view blobs);
  void map();
  void gather(std::string_view mine, std::string& all);
  void exchange(ConstBytes mine, Bytes theirs);
  CallTimeout left() const;
  CommError error(Errc code, const std::string& why, int peer) const;

  EngineGroup& group_;
  const GroupState& membership_;
  Engine& engine_;
  std::string_view name_;
  transport::Deadline deadline_;
  std::string_view knob_;  // of the limit
  std::shared_ptr<Reach> reach_ = std::make_shared<Reach>();
  Registrations registrations_;
  struct Handles {
    transport::MemoryHandle memory, words;
  };
  std::vector<Handles> handles_;  // by rank
  bool is_served_ = false;
};

// Runs a collective to its end. What interrupts the wait ends the group.
void run_collective(EngineGroup& group, const EngineCall& call);

}  // namespace torch::comms::ctran
