#include "ctran/engine/engines.hpp"

#include <thread>
#include <utility>

// What a rank is told of groups that it has not made yet, and of collectives that it has not
// called.
namespace torch::comms::ctran::test {
namespace {

constexpr uint32_t kBase = 16;

std::shared_ptr<GroupState> make(const std::shared_ptr<Engine>& engine, uint32_t number) {
  auto group = std::make_shared<GroupState>(engine, "pair", std::vector<int>{0, 1},
                                            kBase + number * GroupState::kStreams);
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

bool has_deferred_query(const std::shared_ptr<GroupState>& group) {
  auto& progress = group->engine->progress_engine();
  progress.drain_incoming();
  progress.enter();
  const bool found = !group->deferred_queries.empty();
  progress.leave();
  return found;
}

// Rank 0 calls it for no elements: it sends nothing that rank 1 could meet.
TEST(Early, AQuestionIsComparedWhenTheRankComesToItsCollective) {
  const auto engines = engines_of(2);
  const auto early = make(engines[1], 0), late = make(engines[0], 0);
  std::vector<float> ten(10), none;
  Message waits(Operation::kBroadcast, 0, ten, 2), empty(Operation::kBroadcast, 0, none, 2);
  auto* waiting = start_collective(early, waits.call);
  while (!has_deferred_query(late)) std::this_thread::yield();
  auto* coming = start_collective(late, empty.call);
  for (const auto& [engine, task] :
       {std::pair(engines[1], waiting), std::pair(engines[0], coming)}) {
    engine->wait(*task);
    ASSERT_NE(task->error, nullptr);
    EXPECT_EQ(task->error->code(), Errc::kMismatch) << task->error->what();
    task->release();
  }
  EXPECT_TRUE(late->deferred_queries.empty());
  shut_down(engines);
}

}  // namespace
}  // namespace torch::comms::ctran::test
