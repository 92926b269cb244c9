#include "transport/at_once_choice.hpp"

#include <algorithm>

namespace torch::comms::transport {

AtOnceChoice::SizeClass& AtOnceChoice::class_of(uint64_t bytes) noexcept {
  return classes_[std::min(choice_.class_number(bytes), classes_.size() - 1)];
}

void AtOnceChoice::left(uint64_t bytes, Time copy) noexcept {
  auto& known = class_of(bytes);
  known.least_copy = std::min(known.least_copy, copy);
  const bool is_usual = choice_.usual(bytes) == CopyChoice::Way::kChannel;
  if (++known.copies < kTogether && is_usual) return;
  choice_.took(CopyChoice::Way::kChannel, bytes, 2 * (is_usual ? known.least_copy : copy));
  known.least_copy = Time::max();
  known.copies = 0;
}

// Where it has a core its receiver may have come late, which is no matter of the way.
void AtOnceChoice::was_taken(uint64_t bytes, Time after) noexcept {
  const double known = class_of(bytes).fetch_ns;
  const Time copied = Time(static_cast<int64_t>(known)) + kAnnounced;
  choice_.took(CopyChoice::Way::kFetch, bytes,
               known > 0 && !takes_turns_ ? std::min(after, copied) : after);
}

void AtOnceChoice::was_refused(uint64_t bytes) noexcept {
  choice_.took(CopyChoice::Way::kFetch, bytes, Time::max());
}

void AtOnceChoice::fetched(uint64_t bytes, Time copy) noexcept {
  auto& known = class_of(bytes).fetch_ns;
  known = CopyChoice::averaged(known, static_cast<double>(std::max(copy, Time(1)).count()));
}

}  // namespace torch::comms::transport
