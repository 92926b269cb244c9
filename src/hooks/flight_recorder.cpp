#include <torchcomms/hooks/flight_recorder.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <utility>

#include "base/op_order.hpp"
#include "base/os/env.hpp"
#include "hooks/document_writer.hpp"

namespace torch::comms::fr {
namespace {

std::atomic<bool> process_recorder_exists{false};

int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

FlightRecorder::FlightRecorder(size_t max_entries) : max_entries_(max_entries) {}

const std::shared_ptr<FlightRecorder>& FlightRecorder::get() {
  // The recorder is never destroyed, because hooks of communicators that are never finalized still
  // write to it.
  static const auto* recorder = [] {
    const auto size = static_cast<size_t>(base::env_int("TORCHCOMM_FR_BUFFER_SIZE"));
    auto* instance = new std::shared_ptr<FlightRecorder>(std::make_shared<FlightRecorder>(size));
    process_recorder_exists.store(true, std::memory_order_release);
    return instance;
  }();
  return *recorder;
}

std::shared_ptr<FlightRecorder> FlightRecorder::existing() noexcept {
  return process_recorder_exists.load(std::memory_order_acquire) ? get() : nullptr;
}

std::shared_ptr<RecordedGroup> FlightRecorder::add_group(std::string name, std::string backend) {
  auto group = std::make_shared<RecordedGroup>();
  group->name = std::move(name);
  group->backend = std::move(backend);
  std::lock_guard lock(mutex_);
  group->id = next_group_++;
  std::erase_if(groups_, [](const auto& other) { return other.expired(); });
  groups_.push_back(group);
  return group;
}

void FlightRecorder::set_members(RecordedGroup& group, std::vector<int> ranks, int rank) {
  std::lock_guard lock(mutex_);
  group.ranks = std::move(ranks);
  group.rank = rank;
}

Entry* FlightRecorder::find(uint64_t id) noexcept {
  if (id < first_id_ || id >= next_id_ || next_id_ - id > max_entries_) return nullptr;
  const size_t at = id % max_entries_;
  return at < ring_.size() ? &ring_[at] : nullptr;
}

uint64_t FlightRecorder::record(Entry entry) {
  entry.created_ns = wall_clock_ns();
  std::lock_guard lock(mutex_);
  if (!entry.refused && base::is_collective_sequence(entry.sequence))
    entry.group->last_enqueued = entry.sequence;
  const uint64_t id = next_id_++;
  if (max_entries_ == 0) return id;
  // The ring is filled from its beginning, also after a reset() in the middle.
  const size_t at = id % max_entries_;
  if (at < ring_.size())
    ring_[at] = std::move(entry);
  else
    ring_.push_back(std::move(entry));
  return id;
}

void FlightRecorder::started(uint64_t id) noexcept {
  std::lock_guard lock(mutex_);
  Entry* entry = find(id);
  if (entry == nullptr || entry->state != EntryState::kScheduled) return;
  entry->state = EntryState::kStarted;
  entry->started_ns = wall_clock_ns();
  if (base::is_collective_sequence(entry->sequence))
    entry->group->last_started = std::max(entry->group->last_started, entry->sequence);
}

void FlightRecorder::ended(uint64_t id, bool ok) noexcept {
  std::lock_guard lock(mutex_);
  Entry* entry = find(id);
  if (entry == nullptr) return;
  if (!ok) {
    entry->failed = true;
    return;
  }
  entry->state = EntryState::kCompleted;
  entry->retired = true;
  entry->completed_ns = std::max(wall_clock_ns(), entry->created_ns + 1);
  if (base::is_collective_sequence(entry->sequence))
    entry->group->last_completed = std::max(entry->group->last_completed, entry->sequence);
}

void FlightRecorder::reset() noexcept {
  std::lock_guard lock(mutex_);
  first_id_ = next_id_;
  // The content of old entries is freed, but their slots stay, because the ring continues in the
  // middle.
  for (auto& entry : ring_) entry = Entry{};
}

size_t FlightRecorder::size() const noexcept {
  std::lock_guard lock(mutex_);
  return max_entries_ == 0 ? 0 : next_id_ - first_id_;
}

std::optional<int> FlightRecorder::global_rank() const {
  std::lock_guard lock(mutex_);
  for (const auto& weak : groups_)
    if (const auto group = weak.lock(); group && group->rank >= 0)
      return group->ranks.at(static_cast<size_t>(group->rank));
  return std::nullopt;
}

}  // namespace torch::comms::fr
