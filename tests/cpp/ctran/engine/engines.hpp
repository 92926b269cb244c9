#pragma once

#include <memory>
#include <vector>

#include "ctran/engine/collective_task.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"
#include "ctran/engine/messages_task.hpp"
#include "ctran/engine/world.hpp"

// Engines without groups, for what these do not show.
namespace torch::comms::ctran::test {

// By rank, linked by shared memory.
inline std::vector<std::shared_ptr<Engine>> engines_of(int size) {
  const auto job = transport::random_secret();
  std::vector<LinkTable> tables;
  std::vector<std::string> blobs;
  for (int rank = 0; rank < size; ++rank)
    blobs.push_back(tables.emplace_back(rank, size, job, FamilyOptions{}).blob());
  std::vector<std::shared_ptr<Engine>> engines;
  for (auto& table : tables) {
    table.learn(blobs);
    engines.push_back(std::make_shared<Engine>(std::move(table), FamilyOptions{}));
  }
  for (auto& engine : engines) engine->open();
  return engines;
}

inline void shut_down(const std::vector<std::shared_ptr<Engine>>& engines) {
  for (const auto& engine : engines)
    engine->shut_down(CommError(Errc::kFinalized, "the test is over"));
}

// A message in flight; the caller has a reference.
inline Task* start_message(const std::shared_ptr<Membership>& group, const Call& call,
                           Listener* listener = nullptr) {
  auto& engine = *group->engine;
  auto* task = engine.tasks().take_messages();
  task->group = group;
  task->prepare({&call, 1}, group->place.rank, group->size());
  task->name = call.name;
  task->listener = listener;
  task->limit = call.limit;
  task->deadline = deadline_after(call.limit.duration);
  engine.start(task);
  return task;
}

// The same of a collective.
inline Task* start_collective(const std::shared_ptr<Membership>& group, const Call& call) {
  auto& engine = *group->engine;
  auto* task = engine.tasks().take_collective();
  task->group = group;
  task->prepare(call, group->plan(call));
  task->name = call.name;
  task->limit = call.limit;
  task->deadline = deadline_after(call.limit.duration);
  engine.start(task);
  return task;
}

}  // namespace torch::comms::ctran::test
