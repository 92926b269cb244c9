#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ctran/engine/pieces.hpp"
#include "ctran/engine/task.hpp"
#include "side/rank_progress.hpp"

namespace torch::comms::ctran {

// A send, a receive, or a batch of them: all begin at once.
class MessagesTask final : public Task {
 public:
  MessagesTask() noexcept { collective = false; }
  // Copies what the calls lend. Throws CommError(kInvalidArgument) for what is no send or receive,
  // a peer that is none of `size`, a buffer of another size.
  void prepare(std::span<const Call> calls, int rank, int size);

  Outcome begin() override;
  Outcome advance() override;
  // Posts receives whose tag's stream is known by now.
  void on_stream_known() override;
  void close() noexcept override { count_ = 0; }
  bool may_send() const noexcept override;
  bool may_receive() const noexcept override;
  bool is_draining() const noexcept override;
  bool outlives_departures() const noexcept override { return true; }
  std::string waits_for() const override;
  std::vector<int> awaited() const override;
  std::string words() const override;

 private:
  struct Item {
    bool sends = false;
    int peer = 0;  // kAnybody until its message is there
    int tag = 0;
    uint32_t meaning = 0;  // what both sides must agree on
    bool posted = false;   // not while its tag's stream is unknown
    Pieces memory;
    std::vector<ConstBytes> from;  // where it has several pieces
    transport::Request request;
    bool done() const noexcept { return posted && request.is_done(); }
  };
  monitor::NonCollectiveCall aside() const noexcept;
  void post(Item& item);
  // A receive from anybody: posts it to one whose message is there, if any is.
  void take_one(Item& item);
  std::optional<uint32_t> stream_from(int rank, int tag) const;
  void post_on(uint32_t stream, Item& item);
  bool is_hopeless(const Item& item) const;
  bool is_lost(const Item& item) const;
  Outcome give_up(const Item& first);
  // How the other side's message differs, as far as it is known.
  static std::string difference(const Item& item);

  std::deque<Item> items_;  // the first `count_` are of this call
  size_t count_ = 0, finished_ = 0;
};

}  // namespace torch::comms::ctran
