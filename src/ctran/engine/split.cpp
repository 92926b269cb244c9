#include <algorithm>

#include "ctran/engine/collective_task.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/group.hpp"
#include "ctran/engine/membership.hpp"

// A group made of another one's members, who agree about its streams among themselves.
namespace torch::comms::ctran {
namespace {

constexpr int kDirectly = 16;    // members, whose numbers all go to all
constexpr int kMostRounds = 64;  // with other splits of the same ranks in between

void require_members(std::span<const int> ranks, const Membership& parent) {
  const auto wrong = [&](const std::string& why) {
    return CommError(Errc::kInvalidArgument, why,
                     {.op = "split", .comm = parent.name, .rank = parent.place.rank});
  };
  for (const int rank : ranks)
    if (rank < 0 || rank >= parent.size())
      throw wrong("rank " + std::to_string(rank) + " is outside [0, " +
                  std::to_string(parent.size()) + ")");
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    throw wrong("rank " + std::to_string(*twice) + " is there twice");
  if (!std::binary_search(sorted.begin(), sorted.end(), parent.place.rank))
    throw wrong("this rank is not among those that it is to be split with");
}

// The largest of the members' values, who all call this with the same list.
int64_t largest(const std::shared_ptr<Membership>& parent, std::span<const int> members,
                int64_t value, std::chrono::milliseconds limit) {
  using schedule::Operation;
  const auto self = std::find(members.begin(), members.end(), parent->place.rank);
  const Plan::Place place{.rank = static_cast<int>(self - members.begin()),
                          .size = static_cast<int>(members.size())};
  int64_t result = 0;
  const ConstBytes own = std::as_bytes(std::span(&value, 1));
  const Bytes into = std::as_writable_bytes(std::span(&result, 1));
  const Call call{.name = "split",
                  .operation = Operation::kAllReduce,
                  .dtype = static_cast<uint8_t>(Dtype::kInt64),
                  .element_bytes = sizeof value,
                  .op = ReduceOp::kMax,
                  .blocks = schedule::Blocks::even(1, place.size),
                  .input = {&own, 1},
                  .output = {&into, 1},
                  .algorithm = schedule::find_algorithm(
                      Operation::kAllReduce, place.size <= kDirectly ? "one_shot" : "doubling"),
                  .chunk = 0};
  auto plan = std::make_shared<const Plan>(call, place, parent->engine->choose());
  auto& engine = *parent->engine;
  auto* task = engine.tasks().take_collective();
  task->group = parent;
  task->name = call.name;
  task->limit = limit;
  task->deadline = deadline_after(limit);
  task->prepare(call, std::move(plan), {members.begin(), members.end()}, Membership::kSplits);
  engine.submit(task);
  try {
    engine.wait(*task);
  } catch (...) {
    // It uses memory of this function: it must end first.
    parent->request_abort(CommError(Errc::kAborted, "a split was interrupted"));
    engine.attend_to_aborts();
    engine.progress().wait(task->done, Deadline::max());
    task->release();
    throw;
  }
  const auto error = std::move(task->error);
  task->release();
  if (error) throw CommError(*error);
  return result;
}

}  // namespace

std::unique_ptr<Group> Group::split(std::span<const int> ranks, std::string name,
                                    std::chrono::milliseconds limit) {
  auto& engine = membership_->engine;
  engine->require_own_process("split");
  if (ranks.empty()) return nullptr;
  require_members(ranks, *membership_);
  for (int round = 0; round < kMostRounds; ++round) {
    const auto base = static_cast<uint32_t>(
        largest(membership_, ranks, engine->propose_streams(round, membership_->base), limit));
    if (largest(membership_, ranks, engine->claim_streams(base) ? 0 : 1, limit) != 0) continue;
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(family_rank(rank));
    auto membership =
        std::make_shared<Membership>(engine, std::move(name), std::move(members), base);
    engine->add(membership);
    return std::unique_ptr<Group>(new Group(family_, std::move(membership)));
  }
  throw CommError(
      Errc::kResourceExhausted,
      "other splits of the same ranks came in between, " + std::to_string(kMostRounds) + " times",
      {.op = "split", .comm = membership_->name, .rank = membership_->place.rank});
}

}  // namespace torch::comms::ctran
