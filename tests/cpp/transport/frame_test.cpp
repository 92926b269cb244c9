#include "transport/protocol/frame.hpp"

#include <gtest/gtest.h>

#include <random>

#include "transport/protocol/peer_protocol.hpp"

namespace torch::comms::transport {
namespace {

// Takes everything, gives nothing.
class SilentChannel final : public PeerConnection {
 public:
  uint32_t max_payload() const noexcept override { return 4096; }
  unsigned channels() const noexcept override { return 3; }
  bool try_send(const Frame&, std::span<const ConstBytes>, uint32_t*) noexcept override {
    return true;
  }
  ReceiveStatus receive(FrameSink&) noexcept override { return ReceiveStatus::kNothing; }
  const std::string& error_text() const noexcept override { return none_; }

 private:
  std::string none_;
};

Frame frame_of(FrameKind kind, uint32_t bytes) {
  Frame frame;
  frame.kind = kind;
  frame.bytes = bytes;
  return frame;
}

TEST(Frame, IsRefusedUnlessKindLaneAndSizeFit) {
  EXPECT_EQ(frame_error(frame_of(FrameKind::kEager, 0), 64, 1), nullptr);
  EXPECT_EQ(frame_error(frame_of(FrameKind::kEager, 64), 64, 1), nullptr);
  EXPECT_NE(frame_error(frame_of(FrameKind::kEager, 65), 64, 1), nullptr);
  EXPECT_NE(frame_error(frame_of(FrameKind::kData, 0), 64, 1), nullptr);
  EXPECT_NE(frame_error(frame_of(FrameKind::kData, UINT32_MAX), 64, 1), nullptr);
  EXPECT_EQ(frame_error(frame_of(FrameKind::kSignal, sizeof(SignalFrame)), 64, 1), nullptr);
  EXPECT_NE(frame_error(frame_of(FrameKind::kSignal, 1), 64, 1), nullptr);
  EXPECT_EQ(frame_error(frame_of(FrameKind::kCts, sizeof(CtsFrame)), 64, 1), nullptr);
  EXPECT_NE(frame_error(frame_of(FrameKind::kCts, 9), 64, 1), nullptr);
  EXPECT_EQ(frame_error(frame_of(FrameKind::kRts, 24), 64, 1), nullptr);
  EXPECT_NE(frame_error(frame_of(FrameKind::kRts, 32), 64, 1), nullptr);
  EXPECT_NE(frame_error(frame_of(FrameKind::kReadDone, 8), 64, 1), nullptr);
  EXPECT_NE(frame_error(frame_of(static_cast<FrameKind>(0), 0), 64, 1), nullptr);
  EXPECT_NE(frame_error(frame_of(static_cast<FrameKind>(200), 0), 64, 1), nullptr);
  auto frame = frame_of(FrameKind::kEager, 0);
  frame.channel = 1;
  EXPECT_NE(frame_error(frame, 64, 1), nullptr);
  EXPECT_EQ(frame_error(frame, 64, 2), nullptr);
}

// A peer that sends nonsense is failed; whatever it sends, nothing else happens. ASan and UBSan
// look on.
TEST(Frame, RandomFramesFailThePeerAndNothingElse) {
  std::mt19937_64 random(20);
  int failed = 0, accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    RegionTable regions;
    std::vector<std::byte> memory(256), into(300);
    const auto entry = regions.add(memory);
    const ClosedStreams closed;
    PeerProtocol peer(1, regions, {.eager_bytes = 100, .eager_credit = 2000}, closed);
    peer.open(std::make_unique<SilentChannel>());
    uint32_t ordinals[3] = {};
    std::vector<std::byte> payload(4096);
    for (int i = 0; i < 60; ++i) {
      Frame frame;
      frame.kind = static_cast<FrameKind>(random() % 16);
      frame.channel = static_cast<uint8_t>(random() % 3);
      frame.ordinal =
          random() % 50 == 0 ? static_cast<uint32_t>(random()) : ordinals[frame.channel];
      frame.stream = random() % 3 == 0 ? entry.id : static_cast<uint32_t>(random() % 3);
      frame.key = random() % 2 == 0 ? entry.key : 0;
      frame.sequence = random() % 20 == 0 ? static_cast<uint32_t>(random())
                                          : static_cast<uint32_t>(random() % 4);
      frame.value = random() % 4 == 0 ? random() : random() % 300;
      constexpr uint32_t kSizes[] = {0, 1, 8, sizeof(SignalFrame), 40, 100, 4096, UINT32_MAX};
      frame.bytes = kSizes[random() % 8];
      for (int tries = 0; tries < 6 && frame_error(frame, 4096, 3) != nullptr; ++tries)
        frame.bytes = kSizes[random() % 8];
      const auto size = std::min<size_t>(frame.bytes, payload.size());
      for (size_t at = 0; at < std::min<size_t>(size, 24); ++at)
        payload[at] = static_cast<std::byte>(random() % 5 == 0 ? random() : 0);
      const auto placed =
          frame_error(frame, 4096, 3) == nullptr ? peer.payload_target(frame) : Bytes{};
      EXPECT_TRUE(placed.empty() || placed.size() == frame.bytes);
      if (!peer.deliver(frame, {payload.data(), size})) break;
      ++accepted;
      ++ordinals[frame.channel];
      if (i % 10 == 0) peer.progress();
    }
    peer.progress();
    failed += peer.failure() != nullptr;
    peer.fail(Errc::kAborted, "end of the test");
    EXPECT_EQ(peer.state(), PeerState::kFailed);
  }
  EXPECT_GT(accepted, 1000);  // or nothing was tested
  EXPECT_GT(failed, 1000);
}

}  // namespace
}  // namespace torch::comms::transport
