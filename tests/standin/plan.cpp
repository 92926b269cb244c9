#include "standin/plan.hpp"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <sstream>
#include <vector>

namespace torch::comms::standin {
namespace {

struct Entry {
  std::string what, call;
  int64_t number = 0;
  int64_t seen = 0;
};

std::optional<std::vector<Entry>> parse(const std::string& text) {
  std::vector<Entry> entries;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    Entry entry;
    const auto equals = part.find('='), colon = part.find(':');
    if (equals == std::string::npos) return std::nullopt;
    entry.what = part.substr(0, equals);
    const bool counts = entry.what == "progress" || entry.what == "blind";
    if ((colon == std::string::npos) != counts) return std::nullopt;
    if (!counts) entry.call = part.substr(equals + 1, colon - equals - 1);
    const auto number = part.substr((counts ? equals : colon) + 1);
    const auto [end, code] =
        std::from_chars(number.data(), number.data() + number.size(), entry.number);
    const bool known = counts || entry.what == "fail" || entry.what == "hang" ||
                       entry.what == "stick" || entry.what == "lose" || entry.what == "slow";
    if (!known || code != std::errc{} || end != number.data() + number.size()) return std::nullopt;
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::mutex mutex;  // guards plan, and plans_set; partner of changed
auto& changed = *new std::condition_variable;
uint64_t plans_set = 0;
std::vector<Entry>& plan() {
  // Never destroyed: calls may come when the process ends.
  static auto& entries = *new std::vector<Entry>([] {
    const char* text = std::getenv("TORCHCOMMS_STAND_IN");
    return parse(text == nullptr ? "" : text).value_or(std::vector<Entry>{});
  }());
  return entries;
}

}  // namespace

bool set_plan(const std::string& text) {
  auto entries = parse(text);
  if (!entries) return false;
  std::lock_guard lock(mutex);
  plan() = std::move(*entries);
  ++plans_set;
  changed.notify_all();
  return true;
}

void await_next_plan() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [before = plans_set] { return plans_set != before; });
}

PlannedFault next_fault(const char* call) {
  std::lock_guard lock(mutex);
  PlannedFault fault;
  for (auto& entry : plan()) {
    if (entry.call != call && entry.call != "any") continue;
    if (entry.what == "slow") {
      fault.slower_us += entry.number;
      continue;
    }
    if (++entry.seen != entry.number) continue;
    fault.fails = fault.fails || entry.what == "fail";
    fault.hangs = fault.hangs || entry.what == "hang";
    fault.sticks = fault.sticks || entry.what == "stick";
    fault.is_lost = fault.is_lost || entry.what == "lose";
  }
  return fault;
}

bool is_blind() {
  std::lock_guard lock(mutex);
  return std::ranges::any_of(
      plan(), [](const auto& entry) { return entry.what == "blind" && entry.number != 0; });
}

int polls_in_progress() {
  std::lock_guard lock(mutex);
  for (const auto& entry : plan())
    if (entry.what == "progress") return static_cast<int>(entry.number);
  return 0;
}

}  // namespace torch::comms::standin
