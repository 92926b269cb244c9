#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <torchcomms/base/export.hpp>

#include "bootstrap/exchange/frame.hpp"
#include "bootstrap/exchange/rounds.hpp"

// The payload of an answer: a contact (empty in the last round), then the blobs of the sender and
// the ranks after it; each with its length in two bytes before it.
namespace torch::comms::bootstrap {

constexpr size_t least_answer_bytes(int blobs) noexcept {
  return sizeof(uint16_t) * (1 + static_cast<size_t>(blobs));
}
constexpr size_t most_answer_bytes(int blobs) noexcept {
  return least_answer_bytes(blobs) + kMaxContactBytes + kMaxBlobBytes * static_cast<size_t>(blobs);
}
// Of an answer whose blobs begin with that of `sender`; `blobs` holds all ranks'.
TC_API size_t answer_bytes(std::span<const std::string> blobs, const Rounds& sender, int round,
                           std::string_view contact) noexcept;

// An answer on its way out, a piece at a time: half a million blobs are never in memory twice.
class TC_API AnswerWriter {
 public:
  // `blobs` outlives the writer.
  AnswerWriter(const Frame& head, std::span<const std::string> blobs, std::string contact);
  // Appends about `bytes` more to `out`; false when all has been written.
  bool write(size_t bytes, std::string& out);

 private:
  Frame head_;
  std::span<const std::string> blobs_;
  std::string contact_;
  int next_ = -1;  // blob, counted from the sender's; -1: header and contact
};

// What comes back on a connection, of which no byte is believed. Holds at most one blob besides
// those it has taken, whatever the header says.
class TC_API ReplyReader {
 public:
  enum class State : uint8_t { kNotYet, kAnswer, kNotice, kWrong };

  // `blobs` holds all ranks'; those of the answer are written as they come. Empty: an
  // answer is wrong here, only a notice can come.
  ReplyReader(const Door& door, int source, int round, std::span<std::string> blobs);

  // Takes bytes as they come; after another state than kNotYet, none.
  State take(std::string_view bytes);

  const std::string& contact() const noexcept { return contact_; }
  const Notice& notice() const noexcept { return notice_; }
  Refusal wrong() const noexcept { return wrong_; }

 private:
  State refuse(Refusal why);
  bool fill(void* into, size_t size, std::string_view& bytes);
  State take_head(std::string_view& bytes);
  State take_text(std::string_view& bytes);
  State take_notice(std::string_view& bytes);
  bool keep(std::string text);

  Door door_;
  int source_, round_;
  std::span<std::string> blobs_;
  State state_ = State::kNotYet;
  Refusal wrong_ = Refusal::kNone;
  Frame head_;
  size_t have_ = 0;  // bytes of what is being read
  size_t left_ = 0;  // bytes of payload to come
  bool headed_ = false;
  bool measured_ = false;  // the length of the text is known
  uint16_t length_ = 0;
  int next_ = -1;  // the text that is being read: -1 is the contact
  std::string text_, contact_;
  Notice notice_;
};

}  // namespace torch::comms::bootstrap
