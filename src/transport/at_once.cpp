// Messages without a request: see Transport::try_send().

#include "transport/messages.hpp"

namespace torch::comms::transport {

bool Messages::try_send(uint32_t stream, ConstBytes bytes, uint32_t tag) {
  auto* out = sends(stream);
  if (out == nullptr || !has_credit(bytes.size(), limits_.at_once_bytes, 1)) return false;
  if (!out->grants.empty() && !is_granted(*out, bytes.size(), tag)) return false;
  Frame frame;
  frame.kind = FrameKind::kEager;
  frame.stream = stream;
  frame.sequence = out->next;
  frame.key = tag;
  uint32_t borrowed = 0;
  if (!push_eager(frame, bytes.size(), {&bytes, 1}, &borrowed)) return false;
  TC_CHECK(borrowed == 0);
  if (!out->grants.empty()) open_early_ -= out->grants.erase(out->next);
  ++out->next;
  return true;
}

// A receive that was there before its message fits it, if there is one.
bool Messages::is_granted(const Sends& out, uint64_t bytes, uint32_t tag) {
  const auto found = out.grants.find(out.next);
  return found == out.grants.end() || (found->second.tag == tag && found->second.capacity >= bytes);
}

bool Messages::take_kept(uint32_t stream, const Landing& landing, uint32_t tag) {
  auto* in = receives(stream);
  if (in == nullptr || in->early.empty() || !in->posted.empty()) return false;
  const auto found = in->early.find(in->next);
  if (found == in->early.end()) return false;
  const auto& early = found->second;
  if (!early.whole || early.tag != tag || early.data.size() != landing.bytes) return false;
  landing.take(early.data);
  ++in->next;
  keep_spare(take_early(*in, found));
  return_credit(cost(landing.bytes));
  return true;
}

bool Messages::is_next(const Frame& frame) {
  const auto* in = receives(frame.stream);
  return in != nullptr && in->next == frame.sequence && in->posted.empty() && in->early.empty();
}

void Messages::took(const Frame& frame) {
  ++receives(frame.stream)->next;
  return_credit(cost(frame.bytes));
}

}  // namespace torch::comms::transport
