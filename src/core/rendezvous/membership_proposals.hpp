#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bootstrap/key_value_store.hpp"
#include "core/rendezvous/init_handle.hpp"

namespace torch::comms {

// Every key begins with it. What belongs to one member has its identity in the key.
inline constexpr const char* kReconfigureKeyPrefix = "torchcomms/reconfigure";
std::string member_key(const char* kind, const InitHandleInfo& member);

// What the members of a reconfigure() have called, as they tell each other at a store: a number
// that the store gives each call, the uuid, and a hash of the list. Of a member its newest call
// counts.
class MembershipProposals {
 public:
  // Puts this member's own there. Both outlive it. Throws as KeyValueStore does.
  MembershipProposals(bootstrap::KeyValueStore& store, const ReconfigureMembers& members);

  // The claim of a member that names itself alone: it tells those that use this uuid for another
  // list. It ends no call of another uuid that waits for this member, which may still come to that.
  static void propose_single_member(bootstrap::KeyValueStore& store,
                                    const ReconfigureMembers& members);

  // Why these members will not meet: one of the next few that it looks at has called something
  // else since, or uses this uuid for another list. Throws as KeyValueStore does.
  std::optional<std::string> find_conflict();

  // Equal for equal lists.
  uint64_t list_hash() const noexcept { return own_.list_hash; }

 private:
  struct MembershipProposal {
    int64_t number = 0, uuid = 0;
    uint64_t list_hash = 0;

    std::string to_text() const;
    static std::optional<MembershipProposal> parse(const std::string& text);
  };
  std::optional<std::string> find_conflict_with(int rank);

  bootstrap::KeyValueStore& store_;
  const ReconfigureMembers& members_;
  MembershipProposal own_;
  int last_checked_;  // the one that was looked at last
};

}  // namespace torch::comms
