#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bootstrap/key_value_store.hpp"
#include "core/rendezvous/init_handle.hpp"

namespace torch::comms {

// The prefix of every key. A key of one member contains its identity.
inline constexpr const char* kReconfigureKeyPrefix = "torchcomms/reconfigure";
std::string member_key(const char* kind, const InitHandleInfo& member);

// The proposals that members of a reconfigure() publish in the store: a number that the store gives
// each call, the uuid, and a hash of the list. Only the newest proposal of a member counts.
class MembershipProposals {
 public:
  // Publishes the proposal of this member. `store` and `members` must outlive the object.
  // Throws: the errors of KeyValueStore.
  MembershipProposals(bootstrap::KeyValueStore& store, const ReconfigureMembers& members);

  // Publishes the proposal of a member that lists only itself, so that members which use this uuid
  // for another list find the conflict. It does not conflict with waiting calls of another uuid,
  // because this member may still join them.
  static void propose_single_member(bootstrap::KeyValueStore& store,
                                    const ReconfigureMembers& members);

  // Compares the proposals of the next few members with the own one.
  // Returns: the reason why these members cannot meet: a member has called another reconfigure()
  // since, or uses this uuid for another list.
  // Throws: the errors of KeyValueStore.
  std::optional<std::string> find_conflict();

  // Returns: a hash that is equal for equal lists.
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
  int last_checked_;  // the member that was checked last
};

}  // namespace torch::comms
