#include "ctran/engine/engines.hpp"

#include <deque>
#include <numeric>
#include <thread>
#include <utility>

// What a rank is told of groups that it has not made yet, and of collectives that it has not
// called.
namespace torch::comms::ctran::test {
namespace {

constexpr uint32_t kBase = 16;

std::shared_ptr<GroupState> make(const std::shared_ptr<Engine>& engine, uint32_t number) {
  std::vector<int> all(static_cast<size_t>(engine->link_table().size()));
  std::iota(all.begin(), all.end(), 0);
  auto group =
      std::make_shared<GroupState>(engine, "all", all, kBase + number * GroupState::kStreams);
  engine->add_group(group);
  return group;
}

TEST(Early, NoticesOfGroupsThatWereClosedPushOutNoOthers) {
  constexpr uint32_t kClosed = 1100;  // more than are kept
  const auto engines = engines_of(2);
  const auto theirs = make(engines[1], 0);
  engines[1]->remove_group(theirs);  // rank 0 is told, and has yet to make it
  for (uint32_t i = 1; i <= kClosed; ++i) {
    const auto mine = make(engines[0], i), other = make(engines[1], i);
    engines[0]->remove_group(mine);
    engines[1]->remove_group(other);
    for (const auto& engine : engines) engine->progress_engine().drain_incoming();
  }
  const auto late = make(engines[0], 0);
  std::vector<float> payload(1);
  Message receive(Operation::kReceive, 1, payload, 2);
  receive.call.timeout = {seconds(5), "of this test"};
  auto* task = start_message(late, receive.call);
  engines[0]->wait(*task);
  ASSERT_NE(task->error, nullptr);
  EXPECT_EQ(task->error->code(), Errc::kPeerFailed) << task->error->what();
  task->release();
  engines[0]->remove_group(late);
  shut_down(engines);
}

// Whether another rank has asked what this one has called, as it does when a call is late.
bool is_asked(const std::shared_ptr<GroupState>& group) {
  auto& progress = group->engine->progress_engine();
  progress.drain_incoming();
  progress.enter();
  const bool found = group->existing_monitor() != nullptr;
  progress.leave();
  return found;
}

void expect_mismatch(const std::shared_ptr<GroupState>& group, Task* task) {
  group->engine->wait(*task);
  ASSERT_NE(task->error, nullptr);
  EXPECT_EQ(task->error->code(), Errc::kMismatch) << task->error->what();
  task->release();
}

// Rank 0 calls it for no elements: it sends nothing that rank 1 could meet, and has ended its call
// when rank 1 asks again.
TEST(Early, AQuestionIsComparedWhenTheRankHasComeToItsCollective) {
  const auto engines = engines_of(2);
  const auto early = make(engines[1], 0), late = make(engines[0], 0);
  std::vector<float> ten(10), none;
  Message waits(Operation::kBroadcast, 0, ten, 2), empty(Operation::kBroadcast, 0, none, 2);
  auto* waiting = start_collective(early, waits.call);
  while (!is_asked(late)) std::this_thread::yield();
  auto* coming = start_collective(late, empty.call);
  engines[0]->wait(*coming);
  coming->release();
  expect_mismatch(early, waiting);
  while (late->failure() == nullptr) engines[0]->progress_engine().drain_incoming();
  EXPECT_EQ(late->failure()->code(), Errc::kMismatch) << late->failure()->what();
  shut_down(engines);
}

// The first is late and right; then both wait for the other as the root.
TEST(Early, EachOfTwoLateCollectivesIsCompared) {
  const auto engines = engines_of(2);
  const auto early = make(engines[1], 0), late = make(engines[0], 0);
  auto* waiting = start_collective(early, barrier(2));
  while (!is_asked(late)) std::this_thread::yield();
  auto* coming = start_collective(late, barrier(2));
  for (const auto& [engine, task] :
       {std::pair(engines[1], waiting), std::pair(engines[0], coming)}) {
    engine->wait(*task);
    EXPECT_EQ(task->error, nullptr);
    task->release();
  }
  std::vector<float> values(10), others(10);
  Message one(Operation::kBroadcast, 0, values, 2), other(Operation::kBroadcast, 1, others, 2);
  waiting = start_collective(early, one.call);
  coming = start_collective(late, other.call);
  expect_mismatch(early, waiting);
  expect_mismatch(late, coming);
  shut_down(engines);
}

// Rank 0 is alone with its root: that is known once rank 2 has come.
TEST(Early, TheMinorityIsKnownWhenTheLastRankHasCome) {
  const auto engines = engines_of(3, {.query_timeout = seconds(20)});
  std::vector<std::shared_ptr<GroupState>> groups;
  std::vector<std::vector<float>> values(3, std::vector<float>(10));
  std::deque<Message> calls;
  for (int rank = 0; rank < 3; ++rank) {
    const auto at = static_cast<size_t>(rank);
    groups.push_back(make(engines[at], 0));
    calls.emplace_back(Operation::kBroadcast, rank == 0 ? 1 : 0, values[at], 3);
  }
  auto* first = start_collective(groups[0], calls[0].call);
  auto* second = start_collective(groups[1], calls[1].call);
  while (!is_asked(groups[2])) std::this_thread::yield();
  auto* last = start_collective(groups[2], calls[2].call);
  for (const auto& [group, task] :
       {std::pair(groups[0], first), std::pair(groups[1], second), std::pair(groups[2], last)}) {
    expect_mismatch(group, task);
    EXPECT_EQ(group->failure()->context().culprits, std::vector{0}) << group->failure()->what();
  }
  shut_down(engines);
}

}  // namespace
}  // namespace torch::comms::ctran::test
