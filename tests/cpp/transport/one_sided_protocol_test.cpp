#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "transport/protocol/framed_transport.hpp"

namespace torch::comms::transport {
namespace {

constexpr uint32_t kPayload = 1024;
constexpr unsigned kChannels = 3;

// One direction of a connection: what is on blocked channels has not come yet.
struct ChannelQueues {
  struct Sent {
    Frame frame;
    std::vector<std::byte> payload;
  };
  std::array<std::deque<Sent>, kChannels> channels;
  std::array<bool, kChannels> is_blocked{};
};

class QueueChannel final : public PeerConnection {
 public:
  QueueChannel(ChannelQueues& out, ChannelQueues& in) : out_(out), in_(in) {}
  unsigned channels() const noexcept override { return kChannels; }
  uint32_t max_payload() const noexcept override { return kPayload; }
  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t*) noexcept override {
    ChannelQueues::Sent sent{frame, {}};
    for (const auto& piece : payload)
      sent.payload.insert(sent.payload.end(), piece.begin(), piece.end());
    out_.channels[frame.channel].push_back(std::move(sent));
    return true;
  }
  ReceiveStatus receive(FrameSink& sink) noexcept override {
    auto result = ReceiveStatus::kNothing;
    for (unsigned channel = 0; channel < kChannels; ++channel)
      while (!in_.is_blocked[channel] && !in_.channels[channel].empty()) {
        const auto sent = std::move(in_.channels[channel].front());
        in_.channels[channel].pop_front();
        const Bytes target = sink.payload_target(sent.frame);
        if (!target.empty()) std::memcpy(target.data(), sent.payload.data(), target.size());
        sink.deliver(sent.frame, target.empty() ? ConstBytes(sent.payload) : ConstBytes(target));
        result = ReceiveStatus::kSome;
      }
    return result;
  }
  const std::string& error_text() const noexcept override { return no_error_; }

 private:
  ChannelQueues &out_, &in_;
  const std::string no_error_;
};

class QueueTransport final : public FramedTransport {
 public:
  QueueTransport(int rank, ChannelQueues& out, ChannelQueues& in)
      : FramedTransport({.rank = rank, .size = 2}, {"lanes", rank, 1, "", {}}), out_(out), in_(in) {
    connect(1 - rank, {"lanes", 1 - rank, 1, "", {}});
  }
  ~QueueTransport() override { close_peers(); }
  std::string_view name() const noexcept override { return "lanes"; }
  transport::TransportCapabilities capabilities() const override { return {}; }
  int event_fd() const noexcept override { return -1; }

 private:
  void start_connection(int peer, const Endpoint&) override {
    open(peer, std::make_unique<QueueChannel>(out_, in_));
  }
  ChannelQueues &out_, &in_;
};

class OneSidedTest : public ::testing::Test {
 protected:
  OneSidedTest()
      : here_(0, forward_, backward_),
        there_(1, backward_, forward_),
        window_(8 * kPayload + sizeof(uint64_t)),
        opened_(there_.register_memory(window_)),
        remote_(here_.import(opened_->handle())) {}

  // The last word of the window.
  uint64_t counter() const {
    uint64_t value = 0;
    std::memcpy(&value, window_.data() + 8 * kPayload, sizeof value);
    return value;
  }
  void signal() { here_.signal(*remote_, 8 * kPayload, 1, CounterOp::kAdd); }
  void put(Request& request, uint64_t offset, size_t bytes) {
    here_.put(request, *remote_, offset, ConstBytes(data_).first(bytes));
  }
  void block_large_channels(bool block) { forward_.is_blocked = {false, block, block}; }
  void move() {
    for (int step = 0; step < 4; ++step) here_.progress(), there_.progress();
  }
  bool is_put(uint64_t offset, size_t bytes) const {
    return std::memcmp(window_.data() + offset, data_.data(), bytes) == 0;
  }

  ChannelQueues forward_, backward_;
  QueueTransport here_, there_;
  std::vector<std::byte> data_ = std::vector<std::byte>(4 * kPayload, std::byte{7});
  std::vector<std::byte> window_;
  std::unique_ptr<MemoryRegion> opened_;
  std::unique_ptr<RemoteMemory> remote_;
};

// Large puts go by the large channels, others by the first one, as do signals.
TEST_F(OneSidedTest, WhatIsPutAfterASignalDoesNotStandForWhatWasPutBefore) {
  block_large_channels(true);
  Request large, small, later;
  put(large, 0, 3 * kPayload);
  signal();
  put(small, 4 * kPayload, 2 * kPayload);
  put(later, 6 * kPayload, 2 * kPayload);
  signal();
  move();
  EXPECT_TRUE(is_put(4 * kPayload, 2 * kPayload));
  EXPECT_EQ(counter(), 0u) << "the data that was put before it is still on its way";
  block_large_channels(false);
  move();
  EXPECT_EQ(counter(), 2u);
  EXPECT_TRUE(is_put(0, 3 * kPayload));
  EXPECT_EQ(here_.failure(1), nullptr);
  EXPECT_EQ(there_.failure(0), nullptr);
}

TEST_F(OneSidedTest, AFlushEndsWhenWhatWasPutBeforeItIsThere) {
  block_large_channels(true);
  Request large, small, flush;
  put(large, 0, 3 * kPayload);
  here_.flush(flush, 1);
  put(small, 4 * kPayload, 2 * kPayload);
  move();
  EXPECT_FALSE(flush.is_done());
  block_large_channels(false);
  move();
  EXPECT_TRUE(flush.is_done() && flush.is_ok());
}

TEST_F(OneSidedTest, PutsMayBeThereLongBeforeTheSignalsBeforeThem) {
  forward_.is_blocked = {true, false, false};
  std::array<Request, 5> puts;
  for (auto& request : puts) {
    put(request, 0, 3 * kPayload);
    signal();
  }
  move();
  EXPECT_EQ(counter(), 0u);
  forward_.is_blocked = {};
  move();
  EXPECT_EQ(counter(), puts.size());
  EXPECT_EQ(there_.failure(0), nullptr);
}

}  // namespace
}  // namespace torch::comms::transport
