#include "bootstrap/exchange/reception.hpp"

#include <algorithm>
#include <numeric>

namespace torch::comms::bootstrap {

std::vector<Reception::Guest>::iterator Reception::find(uint32_t link) {
  return std::ranges::find(guests_, link, &Guest::link);
}

void Reception::on_open(uint32_t link, Moment now, Links& close) {
  if (guests_.size() == rules_.guests) {
    close.push_back(guests_.front().link);
    count(Refusal::kCrowded);
    guests_.erase(guests_.begin());
  }
  guests_.push_back({.link = link, .since = now});
}

Reception::Answer Reception::on_bytes(uint32_t link, std::string_view bytes) {
  const auto guest = find(link);
  if (guest == guests_.end()) return Answer::kClose;
  const size_t part = std::min(bytes.size(), sizeof guest->frame - guest->have);
  std::copy_n(bytes.begin(), part, reinterpret_cast<char*>(&guest->frame) + guest->have);
  guest->have += part;
  auto why = Refusal::kNone;
  // Whoever speaks another language is shown the door at once.
  if (guest->have >= sizeof guest->frame.magic && guest->frame.magic != Frame::kMagic)
    why = Refusal::kNotOurs;
  else if (guest->have < sizeof guest->frame)
    return Answer::kNotYet;
  else
    why = why_not_ask(guest->frame, door_);
  question_ = guest->frame;
  guests_.erase(guest);
  if (why == Refusal::kNone) return Answer::kComeIn;
  count(why);
  return Answer::kClose;
}

void Reception::on_closed(uint32_t link) {
  const auto guest = find(link);
  if (guest == guests_.end()) return;
  count(Refusal::kLeft);
  guests_.erase(guest);
}

void Reception::on_time(Moment now, Links& close) {
  while (!guests_.empty() && now >= next_time()) {
    close.push_back(guests_.front().link);
    count(Refusal::kTooSlow);
    guests_.erase(guests_.begin());
  }
}

Moment Reception::next_time() const noexcept {
  return guests_.empty() ? kNever : guests_.front().since + rules_.patience;
}

std::string Reception::counts() const {
  const auto all = std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
  std::string text;
  for (size_t i = 0; i < counts_.size(); ++i)
    if (counts_[i] > 0)
      text += (text.empty() ? ": " : ", ") + std::to_string(counts_[i]) + " " +
              std::string(to_text(static_cast<Refusal>(i)));
  if (all == 0) return {};
  return "dropped " + std::to_string(all) + (all == 1 ? " connection" : " connections") + text;
}

}  // namespace torch::comms::bootstrap
