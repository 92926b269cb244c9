#pragma once

#include <memory>
#include <vector>

#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/engine/task/collective_task.hpp"
#include "ctran/engine/task/messages_task.hpp"
#include "ctran/engine/world.hpp"

// Engines without groups, for what these do not show.
namespace torch::comms::ctran::test {

// By rank, linked by shared memory.
inline std::vector<std::shared_ptr<Engine>> engines_of(int size,
                                                       const LinkContextOptions& options = {}) {
  const auto job = transport::random_secret();
  std::vector<LinkTable> tables;
  std::vector<std::string> blobs;
  for (int rank = 0; rank < size; ++rank)
    blobs.push_back(tables.emplace_back(rank, size, job, options).serialize_address());
  std::vector<std::shared_ptr<Engine>> engines;
  for (auto& table : tables) {
    table.set_addresses(blobs);
    engines.push_back(std::make_shared<Engine>(std::move(table), options));
  }
  for (auto& engine : engines) engine->open();
  return engines;
}

inline void shut_down(const std::vector<std::shared_ptr<Engine>>& engines) {
  for (const auto& engine : engines)
    engine->shut_down(CommError(Errc::kFinalized, "the test is over"));
}

// A message in flight; the caller has a reference.
inline Task* start_message(const std::shared_ptr<GroupState>& group, const EngineCall& call,
                           CompletionListener* listener = nullptr) {
  auto& engine = *group->engine;
  auto* task = engine.task_pool().acquire_messages();
  task->group = group;
  task->prepare({&call, 1}, group->layout.rank, group->size());
  task->name = call.name;
  task->listener = listener;
  task->timeout = call.timeout;
  task->deadline = deadline_after(call.timeout.duration);
  engine.start(task);
  return task;
}

// Starts a collective in the same way.
inline Task* start_collective(const std::shared_ptr<GroupState>& group, const EngineCall& call) {
  auto& engine = *group->engine;
  auto* task = engine.task_pool().acquire_collective();
  task->group = group;
  task->prepare(call, group->plan(call));
  task->name = call.name;
  task->timeout = call.timeout;
  task->deadline = deadline_after(call.timeout.duration);
  engine.start(task);
  return task;
}

}  // namespace torch::comms::ctran::test
