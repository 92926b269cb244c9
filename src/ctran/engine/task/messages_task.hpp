#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ctran/engine/plan/io_vector.hpp"
#include "ctran/engine/task/task.hpp"
#include "monitor/rank_progress.hpp"

namespace torch::comms::ctran {

// Runs a send, a receive, or a batch of them, which all begin at once.
class MessagesTask final : public Task {
 public:
  MessagesTask() noexcept { is_collective = false; }
  // Sets the calls up. Copies the lists that they lend.
  // Throws: CommError(kInvalidArgument) for an operation other than send and receive, a peer
  // outside of [0, size), or a buffer of the wrong size.
  void prepare(std::span<const EngineCall> calls, int rank, int size);

  TaskStatus begin() override;
  TaskStatus advance() override;
  // Posts the receives whose tag's stream is known by now.
  void on_tag_stream_known() override;
  void close() noexcept override { count_ = 0; }
  bool can_still_send() const noexcept override;
  bool can_still_receive() const noexcept override;
  bool is_draining() const noexcept override;
  bool can_outlive_left_peers() const noexcept override { return true; }
  std::string format_pending() const override;
  std::vector<int> awaited_ranks() const override;
  std::string format_call() const override;

 private:
  struct BatchedMessage {
    bool is_send = false;
    int peer = 0;  // kAnySource until its message has come
    int tag = 0;
    uint32_t signature = 0;  // must be equal on sender and receiver
    bool is_posted = false;  // false while the stream of its tag is unknown
    IoVector memory;
    std::vector<ConstBytes> from;  // pieces of a send
    transport::Request request;
    bool done() const noexcept { return is_posted && request.is_done(); }
  };
  monitor::NonCollectiveCall p2p_call() const noexcept;
  void post(BatchedMessage& item);
  // Posts a receive from any source to a rank whose message has come, if there is one.
  void match_any_source(BatchedMessage& item);
  std::optional<uint32_t> stream_from(int rank, int tag) const;
  void post_on_stream(uint32_t stream, BatchedMessage& item);
  bool can_never_complete(const BatchedMessage& item) const;
  bool has_lost_link(const BatchedMessage& item) const;
  TaskStatus fail_locally(const BatchedMessage& first);
  // Describes how the message of the other side differs, as far as that is known.
  static std::string describe_mismatch(const BatchedMessage& item);

  std::deque<BatchedMessage> items_;  // the first count_ belong to this call
  size_t count_ = 0, finished_ = 0;
};

}  // namespace torch::comms::ctran
