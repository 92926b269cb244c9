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
constexpr unsigned kLanes = 3;

// One way of a channel: what is on lanes that stand still has not come yet.
struct Way {
  struct Sent {
    Frame frame;
    std::vector<std::byte> payload;
  };
  std::array<std::deque<Sent>, kLanes> lanes;
  std::array<bool, kLanes> stands_still{};
};

class QueueChannel final : public PeerConnection {
 public:
  QueueChannel(Way& out, Way& in) : out_(out), in_(in) {}
  unsigned channels() const noexcept override { return kLanes; }
  uint32_t max_payload() const noexcept override { return kPayload; }
  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t*) noexcept override {
    Way::Sent sent{frame, {}};
    for (const auto& piece : payload)
      sent.payload.insert(sent.payload.end(), piece.begin(), piece.end());
    out_.lanes[frame.channel].push_back(std::move(sent));
    return true;
  }
  ReceiveStatus receive(FrameSink& sink) noexcept override {
    auto result = ReceiveStatus::kNothing;
    for (unsigned lane = 0; lane < kLanes; ++lane)
      while (!in_.stands_still[lane] && !in_.lanes[lane].empty()) {
        const auto sent = std::move(in_.lanes[lane].front());
        in_.lanes[lane].pop_front();
        const Bytes place = sink.payload_target(sent.frame);
        if (!place.empty()) std::memcpy(place.data(), sent.payload.data(), place.size());
        sink.deliver(sent.frame, place.empty() ? ConstBytes(sent.payload) : ConstBytes(place));
        result = ReceiveStatus::kSome;
      }
    return result;
  }
  const std::string& error_text() const noexcept override { return never_; }

 private:
  Way &out_, &in_;
  const std::string never_;
};

class LaneTransport final : public FramedTransport {
 public:
  LaneTransport(int rank, Way& out, Way& in)
      : FramedTransport({.rank = rank, .size = 2}, {"lanes", rank, 1, "", {}}), out_(out), in_(in) {
    connect(1 - rank, {"lanes", 1 - rank, 1, "", {}});
  }
  ~LaneTransport() override { close_peers(); }
  std::string_view name() const noexcept override { return "lanes"; }
  transport::TransportCapabilities capabilities() const override { return {}; }
  int event_fd() const noexcept override { return -1; }

 private:
  void start_connection(int peer, const Endpoint&) override {
    open(peer, std::make_unique<QueueChannel>(out_, in_));
  }
  Way &out_, &in_;
};

class OneSidedTest : public ::testing::Test {
 protected:
  OneSidedTest()
      : here_(0, way_, back_),
        there_(1, back_, way_),
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
  void hold_wide_lanes(bool hold) { way_.stands_still = {false, hold, hold}; }
  void move() {
    for (int turn = 0; turn < 4; ++turn) here_.progress(), there_.progress();
  }
  bool is_put(uint64_t offset, size_t bytes) const {
    return std::memcmp(window_.data() + offset, data_.data(), bytes) == 0;
  }

  Way way_, back_;
  LaneTransport here_, there_;
  std::vector<std::byte> data_ = std::vector<std::byte>(4 * kPayload, std::byte{7});
  std::vector<std::byte> window_;
  std::unique_ptr<MemoryRegion> opened_;
  std::unique_ptr<RemoteMemory> remote_;
};

// Large puts go by the wide lanes, others by the first one, as do signals.
TEST_F(OneSidedTest, WhatIsPutAfterASignalDoesNotStandForWhatWasPutBefore) {
  hold_wide_lanes(true);
  Request large, small, later;
  put(large, 0, 3 * kPayload);
  signal();
  put(small, 4 * kPayload, 2 * kPayload);
  put(later, 6 * kPayload, 2 * kPayload);
  signal();
  move();
  EXPECT_TRUE(is_put(4 * kPayload, 2 * kPayload));
  EXPECT_EQ(counter(), 0u) << "the data that was put before it is still on its way";
  hold_wide_lanes(false);
  move();
  EXPECT_EQ(counter(), 2u);
  EXPECT_TRUE(is_put(0, 3 * kPayload));
  EXPECT_EQ(here_.failure(1), nullptr);
  EXPECT_EQ(there_.failure(0), nullptr);
}

TEST_F(OneSidedTest, AFlushEndsWhenWhatWasPutBeforeItIsThere) {
  hold_wide_lanes(true);
  Request large, small, flush;
  put(large, 0, 3 * kPayload);
  here_.flush(flush, 1);
  put(small, 4 * kPayload, 2 * kPayload);
  move();
  EXPECT_FALSE(flush.is_done());
  hold_wide_lanes(false);
  move();
  EXPECT_TRUE(flush.is_done() && flush.is_ok());
}

TEST_F(OneSidedTest, PutsMayBeThereLongBeforeTheSignalsBeforeThem) {
  way_.stands_still = {true, false, false};
  std::array<Request, 5> puts;
  for (auto& request : puts) {
    put(request, 0, 3 * kPayload);
    signal();
  }
  move();
  EXPECT_EQ(counter(), 0u);
  way_.stands_still = {};
  move();
  EXPECT_EQ(counter(), puts.size());
  EXPECT_EQ(there_.failure(0), nullptr);
}

}  // namespace
}  // namespace torch::comms::transport
