// Bytes of strangers at a rank that is exchanging: as a question, as a reply, as a notice.

#include <string>
#include <vector>

#include "bootstrap/address_exchange/pending_connections.hpp"
#include "bootstrap/address_exchange/response.hpp"
#include "fuzz.hpp"

namespace tcb = torch::comms::bootstrap;
using torch::comms::fuzz::require;

namespace {

// The first byte says how the others are cut into pieces.
template <class Take>
void in_pieces(std::string_view bytes, const Take& take) {
  if (bytes.empty()) return;
  const size_t piece = 1 + static_cast<unsigned char>(bytes[0]);
  for (size_t at = 1; at < bytes.size(); at += piece)
    if (!take(bytes.substr(at, piece))) return;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = torch::comms::fuzz::text_of(data, size);
  const tcb::ExchangeEndpointId door{.rank = 3, .size = 13, .instance = 1, .job = {}};
  tcb::PendingConnections reception(door, {});
  tcb::PendingConnections::ConnectionIds close;
  reception.on_open(1, {}, close);
  in_pieces(bytes, [&](std::string_view piece) {
    return reception.on_bytes(1, piece) == tcb::PendingConnections::HandshakeStatus::kIncomplete;
  });
  for (int round = 0; round < 4; ++round) {
    std::vector<std::string> blobs(13);
    tcb::ResponseReader reader(door, tcb::BruckRounds{3, 13}.source(round), round, blobs);
    in_pieces(bytes, [&](std::string_view piece) {
      return reader.feed(piece) == tcb::ResponseReader::State::kIncomplete;
    });
    for (const auto& blob : blobs) require(blob.size() <= tcb::kMaxBlobBytes);
    require(reader.contact().size() <= tcb::kMaxContactBytes);
    require(blobs[3].empty());  // nobody else says what this rank says
  }
  if (const auto notice = tcb::parse_notice(bytes, 13)) require(notice->peer < 13);
  return 0;
}
