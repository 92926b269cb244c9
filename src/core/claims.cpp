#include "core/claims.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

namespace torch::comms {
namespace {

constexpr std::chrono::milliseconds kKnownKeyTimeout{5000};  // for what is known to be there
constexpr int kLookedAt = 16;                                // members, at one time

}  // namespace

std::string member_key(const char* kind, const MemberHandle& member) {
  std::string key = kMembersScope;
  for (const auto& word : {std::string(kind), std::to_string(member.identity)})
    key.append("/").append(word);
  return key;
}

std::string Claims::Claim::text() const {
  return std::to_string(number) + " " + std::to_string(uuid) + " " + std::to_string(list);
}

std::optional<Claims::Claim> Claims::Claim::parse(const std::string& text) {
  Claim claim;
  const auto* at = text.data();
  const auto* end = at + text.size();
  const auto take = [&](auto& number) {
    if (at != end && *at == ' ') ++at;
    const auto [stop, error] = std::from_chars(at, end, number);
    at = stop;
    return error == std::errc{};
  };
  if (take(claim.number) && take(claim.uuid) && take(claim.list)) return claim;
  return std::nullopt;
}

Claims::Claims(bootstrap::KeyValueStore& store, const Members& members)
    : store_(store), members_(members), next_(members.rank) {
  std::string counter = kMembersScope;
  own_ = {store.add(counter.append("/calls"), 1), members.uuid, members.list()};
  store.set(member_key("claim", members.handles[static_cast<size_t>(members.rank)]), own_.text());
}

void Claims::claim_alone(bootstrap::KeyValueStore& store, const Members& members) {
  const Claim claim{.number = 0, .uuid = members.uuid, .list = members.list()};
  store.set(member_key("claim", members.handles.front()), claim.text());
}

std::optional<std::string> Claims::doubt() {
  for (int i = 0; i < std::min(kLookedAt, members_.size() - 1); ++i) {
    next_ = (next_ + 1) % members_.size();
    if (next_ == members_.rank) next_ = (next_ + 1) % members_.size();
    if (auto why = about(next_)) return why;
  }
  return std::nullopt;
}

std::optional<std::string> Claims::about(int rank) {
  const auto& member = members_.handles[static_cast<size_t>(rank)];
  const auto its_key = member_key("claim", member);
  if (!store_.has({its_key})) return std::nullopt;
  const auto claim = Claim::parse(store_.get(its_key, kKnownKeyTimeout));
  if (!claim || (claim->uuid == own_.uuid && claim->list == own_.list)) return std::nullopt;
  const auto who = "rank " + std::to_string(rank) + " of this list (" + member.text() + ")";
  if (claim->uuid == own_.uuid)
    return "the members disagree about who they are: " + who +
           " calls reconfigure(uuid=" + std::to_string(own_.uuid) +
           ") with another list, or with this one in another order";
  // An older call than this one may still end, and be followed by this one.
  if (claim->number < own_.number) return std::nullopt;
  return who + " has since called reconfigure(uuid=" + std::to_string(claim->uuid) +
         "), which ends this one (uuid=" + std::to_string(own_.uuid) + ")";
}

}  // namespace torch::comms
