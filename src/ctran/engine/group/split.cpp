#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/text/utf8.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/engine_group.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/engine/task/collective_task.hpp"
#include "monitor/fingerprint.hpp"
#include "monitor/rank_progress.hpp"

// split(): creates a group from members of another group. The members agree on its streams among
// themselves.
namespace torch::comms::ctran {
namespace {

constexpr int kMaxOneShotMembers = 16;  // up to this many members, all send their numbers to all
constexpr int kMostRounds = 64;  // attempts, if other splits of the same ranks take the streams

void require_members(std::span<const int> ranks, const GroupState& parent) {
  const auto wrong = [&](const std::string& why) {
    return CommError(Errc::kInvalidArgument, why,
                     {.op = "split", .comm = parent.name, .rank = parent.layout.rank});
  };
  for (const int rank : ranks)
    if (rank < 0 || rank >= parent.size())
      throw wrong("rank " + std::to_string(rank) + " is outside [0, " +
                  std::to_string(parent.size()) + ")");
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    throw wrong("rank " + std::to_string(*twice) + " is in the list twice");
  if (!std::binary_search(sorted.begin(), sorted.end(), parent.layout.rank))
    throw wrong("the list (" + monitor::format_rank_list(sorted) + ") does not contain rank " +
                std::to_string(parent.layout.rank) +
                ", which calls split(); add this rank to the list, or pass [] to take no part");
}

using Numbers = std::vector<int64_t>;

// Returns the maximum of the members' values, element by element. All members call this with the
// same list and equally many values.
Numbers all_reduce_max(const std::shared_ptr<GroupState>& parent, std::span<const int> members,
                       const Numbers& values, const CallTimeout& limit) {
  using schedule::Operation;
  const auto self = std::find(members.begin(), members.end(), parent->layout.rank);
  const CollectivePlan::GroupLayout layout{.rank = static_cast<int>(self - members.begin()),
                                           .size = static_cast<int>(members.size())};
  Numbers result(values.size());
  const ConstBytes own = std::as_bytes(std::span(values));
  const Bytes into = std::as_writable_bytes(std::span(result));
  const EngineCall call{
      .name = "split",
      .operation = Operation::kAllReduce,
      .dtype = static_cast<uint8_t>(Dtype::kInt64),
      .element_bytes = sizeof values[0],
      .op = ReduceOpCode::kMax,
      .blocks = schedule::Blocks::even(static_cast<int64_t>(values.size()), layout.size),
      .input = {&own, 1},
      .output = {&into, 1},
      .algorithm = schedule::find_algorithm(
          Operation::kAllReduce, layout.size <= kMaxOneShotMembers ? "one_shot" : "doubling"),
      .chunk = 0};
  auto plan = std::make_shared<const CollectivePlan>(call, layout, parent->engine->chooser());
  auto& engine = *parent->engine;
  auto* task = engine.task_pool().acquire_collective();
  task->group = parent;
  task->name = call.name;
  task->timeout = limit;
  task->deadline = deadline_after(limit.duration);
  task->prepare(call, std::move(plan), {members.begin(), members.end()}, GroupState::kSplits);
  engine.submit(task);
  try {
    engine.wait(*task);
  } catch (...) {
    // The task uses memory of this function, so it must complete first.
    parent->request_abort(CommError(Errc::kAborted, "split() was interrupted"));
    engine.notify_abort_request();
    engine.progress_engine().wait(task->is_done, Deadline::max());
    task->release();
    throw;
  }
  const auto error = std::move(task->error);
  task->release();
  if (error) throw CommError(*error);
  return result;
}

// If max(x) and max(opposite(x)) over all members are opposites, x is equal on all members.
int64_t opposite(int64_t value) { return ~value; }

constexpr size_t kNameWords = 8;  // of each name, when the names differ
constexpr size_t kNameBytes = kNameWords * sizeof(int64_t);

std::string shortened(const std::string& name) {
  constexpr size_t kHalf = kNameBytes / 2;
  if (name.size() <= kNameBytes) return name;
  return std::string(base::utf8_prefix(name, kHalf - 3)) + "..." +
         std::string(base::utf8_suffix(name, kHalf));
}

// Collects the members' names, after every member has found that they differ, and returns the
// error.
CommError name_mismatch(const std::shared_ptr<GroupState>& parent, std::span<const int> members,
                        const std::string& whole_name, const CallTimeout& limit) {
  const auto name = shortened(whole_name);
  Numbers all_names(members.size() * kNameWords, std::numeric_limits<int64_t>::min());
  std::array<int64_t, kNameWords> encoded{};
  std::memcpy(encoded.data(), name.data(), name.size());
  const auto self = std::find(members.begin(), members.end(), parent->layout.rank);
  std::copy(encoded.begin(), encoded.end(),
            all_names.begin() + (self - members.begin()) * static_cast<ptrdiff_t>(kNameWords));
  all_names = all_reduce_max(parent, members, all_names, limit);
  std::map<std::string, std::vector<int>> by_name;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto* text = reinterpret_cast<const char*>(&all_names[i * kNameWords]);
    by_name[{text, ::strnlen(text, kNameBytes)}].push_back(members[i]);
  }
  std::string why = "the ranks call split() with different names";
  for (auto& [each, ranks] : by_name) {
    std::sort(ranks.begin(), ranks.end());
    why += (&each == &by_name.begin()->first ? ": '" : ", '") + each + "' by " +
           monitor::format_rank_list(ranks);
  }
  return {Errc::kMismatch, why, {.op = "split", .comm = parent->name, .rank = parent->layout.rank}};
}

}  // namespace

std::unique_ptr<EngineGroup> EngineGroup::split(std::span<const int> ranks, std::string name,
                                                const CallTimeout& limit, SplitNames names) {
  auto& engine = state_->engine;
  engine->require_own_process("split");
  if (ranks.empty()) return nullptr;
  require_members(ranks, *state_);
  const auto name_hash = names == SplitNames::kMayDiffer
                             ? 0
                             : static_cast<int64_t>(monitor::hash_bytes(name.data(), name.size()));
  for (int round = 0; round < kMostRounds; ++round) {
    const int64_t proposal = engine->propose_streams(round, state_->base);
    const auto found =
        all_reduce_max(state_, ranks, {proposal, name_hash, opposite(name_hash)}, limit);
    if (found[1] != opposite(found[2])) throw name_mismatch(state_, ranks, name, limit);
    const auto base = static_cast<uint32_t>(found[0]);
    if (all_reduce_max(state_, ranks, {engine->claim_streams(base) ? 0 : 1}, limit)[0] != 0)
      continue;
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(context_rank(rank));
    auto group = std::make_shared<GroupState>(engine, std::move(name), std::move(members), base);
    engine->add_group(group);
    return std::unique_ptr<EngineGroup>(new EngineGroup(link_context_, std::move(group)));
  }
  throw CommError(Errc::kResourceExhausted,
                  "the members could not agree on the streams of the new group in " +
                      std::to_string(kMostRounds) +
                      " attempts, because the same ranks create other splits at the same time; "
                      "call split() in the same order on all ranks, not concurrently",
                  {.op = "split", .comm = state_->name, .rank = state_->layout.rank});
}

}  // namespace torch::comms::ctran
