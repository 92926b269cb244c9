#include "vendor/blocking_adapter/message_exchange.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace torch::comms::nccl::host {
namespace {

using DataType = abi::DataType;

// Returns the bytes per peer in one direction.
std::vector<uint64_t> sizes_of(std::span<const PointToPointMessage> messages, bool sends,
                               size_t ranks) {
  std::vector<uint64_t> sizes(ranks);
  for (const auto& message : messages)
    if (message.is_send == sends) sizes[static_cast<size_t>(message.peer)] += message.size_bytes;
  return sizes;
}

// Calls `copy` for each message of one direction, with its place in `parts`, which has a part of
// `part_bytes` per rank.
template <class Copy>
void walk(std::span<const PointToPointMessage> messages, bool sends, std::vector<char>& parts,
          size_t part_bytes, size_t ranks, const Copy& copy) {
  std::vector<size_t> done(ranks);
  for (const auto& message : messages) {
    if (message.is_send != sends || message.size_bytes == 0) continue;
    const auto peer = static_cast<size_t>(message.peer);
    copy(parts.data() + peer * part_bytes + done[peer], message);
    done[peer] += message.size_bytes;
  }
}

}  // namespace

abi::Result exchange_messages(BlockingCommunicator& member,
                              std::span<const PointToPointMessage> messages) {
  const auto& library = member.library();
  const auto ranks = static_cast<size_t>(member.size()), own = static_cast<size_t>(member.rank());
  const auto sent = sizes_of(messages, true, ranks), expected = sizes_of(messages, false, ranks);
  std::vector<uint64_t> all(ranks * ranks);  // bytes by (sender, receiver)
  if (const auto result = library.AllGather(sent.data(), all.data(), ranks, DataType::kUint64,
                                            member.communicator(), nullptr);
      result != abi::kSuccess)
    return result;
  const size_t most = *std::max_element(all.begin(), all.end());
  std::vector<char> out(ranks * most), in(ranks * most);
  if (most > 0) {
    walk(messages, true, out, most, ranks, [](char* part, const PointToPointMessage& message) {
      std::memcpy(part, message.data, message.size_bytes);
    });
    if (const auto result = library.AllToAll(out.data(), in.data(), most, DataType::kUint8,
                                             member.communicator(), nullptr);
        result != abi::kSuccess)
      return result;
  }
  for (size_t peer = 0; peer < ranks; ++peer)
    if (const auto theirs = all[peer * ranks + own]; theirs != expected[peer])
      return member.set_error(abi::kInvalidUsage, "rank " + std::to_string(peer) + " sends " +
                                                      std::to_string(theirs) + " bytes to rank " +
                                                      std::to_string(own) + ", which receives " +
                                                      std::to_string(expected[peer]));
  walk(messages, false, in, most, ranks, [](const char* part, const PointToPointMessage& message) {
    std::memcpy(message.data, part, message.size_bytes);
  });
  return abi::kSuccess;
}

}  // namespace torch::comms::nccl::host
