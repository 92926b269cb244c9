#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <torchcomms/base/export.hpp>

#include "bootstrap/address_exchange/bruck_rounds.hpp"
#include "bootstrap/address_exchange/exchange_frame.hpp"

// The payload of a response: a contact (empty in the last round), then the blobs of the sender and
// of the ranks after it. Each has its length in two bytes in front.
namespace torch::comms::bootstrap {

constexpr size_t min_response_bytes(int blobs) noexcept {
  return sizeof(uint16_t) * (1 + static_cast<size_t>(blobs));
}
constexpr size_t max_response_bytes(int blobs) noexcept {
  return min_response_bytes(blobs) + kMaxContactBytes + kMaxBlobBytes * static_cast<size_t>(blobs);
}
// Returns the payload size of a response that begins with the blob of `sender`; `blobs` holds all
// ranks' blobs.
TC_API size_t response_bytes(std::span<const std::string> blobs, const BruckRounds& sender,
                             int round, std::string_view contact) noexcept;

// Writes a response in pieces, so that the blobs of half a million ranks are never in memory twice.
class TC_API ResponseWriter {
 public:
  // Lifetime: `blobs` must outlive the writer.
  ResponseWriter(const ExchangeFrame& head, std::span<const std::string> blobs,
                 std::string contact);
  // Appends about `bytes` bytes to `out`. Returns: false once all has been written.
  bool write(size_t bytes, std::string& out);

 private:
  ExchangeFrame head_;
  std::span<const std::string> blobs_;
  // The index of the next blob, counted from the sender's; -1: header and contact.
  std::string contact_;
  int next_ = -1;
};

// Reads a response or failure notice from untrusted bytes. It holds at most one blob besides those
// it has stored, whatever the header claims.
class TC_API ResponseReader {
 public:
  enum class State : uint8_t { kIncomplete, kResponse, kFailure, kInvalid };

  // `blobs` holds all ranks' blobs; the reader stores those of the response there. If it is empty,
  // a response is invalid and only a notice is accepted.
  ResponseReader(const ExchangeEndpointId& own_id, int source, int round,
                 std::span<std::string> blobs);

  // Consumes bytes in any division. After a state other than kIncomplete it consumes none.
  State feed(std::string_view bytes);

  const std::string& contact() const noexcept { return contact_; }
  const FailureNotice& failure() const noexcept { return failure_; }
  DropReason drop_reason() const noexcept { return drop_reason_; }

 private:
  State reject(DropReason why);
  bool fill(void* into, size_t size, std::string_view& bytes);
  State read_header(std::string_view& bytes);
  State read_text(std::string_view& bytes);
  State read_failure(std::string_view& bytes);
  bool store_text(std::string text);

  ExchangeEndpointId own_id_;
  int source_, round_;
  std::span<std::string> blobs_;
  State state_ = State::kIncomplete;
  DropReason drop_reason_ = DropReason::kNone;
  ExchangeFrame head_;
  size_t bytes_read_ = 0;    // of the item being read
  size_t payload_left_ = 0;  // of the payload, still to come
  bool has_header_ = false;
  bool has_length_ = false;  // the length of the text is known
  uint16_t length_ = 0;
  int next_ = -1;  // index of the text being read; -1: the contact
  std::string text_, contact_;
  FailureNotice failure_;
};

}  // namespace torch::comms::bootstrap
