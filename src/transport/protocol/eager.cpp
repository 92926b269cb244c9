// Inline eager messages: see Transport::try_send().

#include "transport/protocol/message_protocol.hpp"

namespace torch::comms::transport {

bool MessageProtocol::try_send(uint32_t stream, ConstBytes bytes, uint32_t tag) {
  auto* out = sends(stream);
  if (out == nullptr || !has_credit(bytes.size(), options_.inline_eager_bytes, 1)) return false;
  if (!out->early_cts.empty() && !is_cleared(*out, bytes.size(), tag)) return false;
  Frame frame;
  frame.kind = FrameKind::kEager;
  frame.stream = stream;
  frame.sequence = out->next;
  frame.key = tag;
  uint32_t frames_in_use = 0;
  if (!send_eager(frame, bytes.size(), {&bytes, 1}, &frames_in_use)) return false;
  TC_CHECK(frames_in_use == 0);
  if (!out->early_cts.empty()) unmatched_entries_ -= out->early_cts.erase(out->next);
  ++out->next;
  return true;
}

// Returns: whether the message fits its receive, if the receive's kCts is here already.
bool MessageProtocol::is_cleared(const SendStream& out, uint64_t bytes, uint32_t tag) {
  const auto found = out.early_cts.find(out.next);
  return found == out.early_cts.end() ||
         (found->second.tag == tag && found->second.capacity >= bytes);
}

bool MessageProtocol::take_unexpected(uint32_t stream, const ReceiveTarget& target, uint32_t tag) {
  auto* in = receives(stream);
  if (in == nullptr || in->unexpected.empty() || !in->posted.empty()) return false;
  const auto found = in->unexpected.find(in->next);
  if (found == in->unexpected.end()) return false;
  const auto& early = found->second;
  if (!early.is_whole || early.tag != tag || early.data.size() != target.bytes) return false;
  target.write(early.data);
  ++in->next;
  recycle_node(extract_unexpected(*in, found));
  return_credit(credit_cost(target.bytes));
  return true;
}

bool MessageProtocol::is_next(const Frame& frame) {
  const auto* in = receives(frame.stream);
  return in != nullptr && in->next == frame.sequence && in->posted.empty() &&
         in->unexpected.empty();
}

void MessageProtocol::on_received_in_place(const Frame& frame) {
  ++receives(frame.stream)->next;
  return_credit(credit_cost(frame.bytes));
}

}  // namespace torch::comms::transport
