#include "core/rendezvous/membership_proposals.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

namespace torch::comms {
namespace {

constexpr std::chrono::milliseconds kKnownKeyTimeout{5000};  // for what is known to be there
constexpr int kPeersPerCheck = 16;                           // members, at one time

}  // namespace

std::string member_key(const char* kind, const InitHandleInfo& member) {
  std::string key = kReconfigureKeyPrefix;
  for (const auto& part : {std::string(kind), std::to_string(member.identity)})
    key.append("/").append(part);
  return key;
}

std::string MembershipProposals::MembershipProposal::to_text() const {
  return std::to_string(number) + " " + std::to_string(uuid) + " " + std::to_string(list_hash);
}

std::optional<MembershipProposals::MembershipProposal>
MembershipProposals::MembershipProposal::parse(const std::string& text) {
  MembershipProposal proposal;
  const auto* at = text.data();
  const auto* end = at + text.size();
  const auto take = [&](auto& number) {
    if (at != end && *at == ' ') ++at;
    const auto [stop, error] = std::from_chars(at, end, number);
    at = stop;
    return error == std::errc{};
  };
  if (take(proposal.number) && take(proposal.uuid) && take(proposal.list_hash)) return proposal;
  return std::nullopt;
}

MembershipProposals::MembershipProposals(bootstrap::KeyValueStore& store,
                                         const ReconfigureMembers& members)
    : store_(store), members_(members), last_checked_(members.rank) {
  std::string counter = kReconfigureKeyPrefix;
  own_ = {store.add(counter.append("/calls"), 1), members.uuid, members.list_hash()};
  store.set(member_key("claim", members.handles[static_cast<size_t>(members.rank)]),
            own_.to_text());
}

void MembershipProposals::propose_single_member(bootstrap::KeyValueStore& store,
                                                const ReconfigureMembers& members) {
  const MembershipProposal proposal{
      .number = 0, .uuid = members.uuid, .list_hash = members.list_hash()};
  store.set(member_key("claim", members.handles.front()), proposal.to_text());
}

std::optional<std::string> MembershipProposals::find_conflict() {
  for (int i = 0; i < std::min(kPeersPerCheck, members_.size() - 1); ++i) {
    last_checked_ = (last_checked_ + 1) % members_.size();
    if (last_checked_ == members_.rank) last_checked_ = (last_checked_ + 1) % members_.size();
    if (auto why = find_conflict_with(last_checked_)) return why;
  }
  return std::nullopt;
}

std::optional<std::string> MembershipProposals::find_conflict_with(int rank) {
  const auto& member = members_.handles[static_cast<size_t>(rank)];
  const auto its_key = member_key("claim", member);
  if (!store_.has({its_key})) return std::nullopt;
  const auto proposal = MembershipProposal::parse(store_.get(its_key, kKnownKeyTimeout));
  if (!proposal || (proposal->uuid == own_.uuid && proposal->list_hash == own_.list_hash))
    return std::nullopt;
  const auto who = "rank " + std::to_string(rank) + " of this list (" + member.to_text() + ")";
  if (proposal->uuid == own_.uuid)
    return "the members disagree about the list of members: " + who +
           " calls reconfigure(uuid=" + std::to_string(own_.uuid) +
           ") with another list, or with this one in another order";
  // An older call than this one may still end, and be followed by this one.
  if (proposal->number < own_.number) return std::nullopt;
  return who + " has since called reconfigure(uuid=" + std::to_string(proposal->uuid) +
         "), which ends this one (uuid=" + std::to_string(own_.uuid) + ")";
}

}  // namespace torch::comms
