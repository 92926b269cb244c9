#include "transport/protocol/peer_protocol.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace {

thread_local bool has_memory = true;

}  // namespace

// Sanitizers bring their own operator new.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
constexpr bool kMayFail = true;
[[gnu::noinline]] void* operator new(size_t size) {
  if (void* at = has_memory ? std::malloc(size == 0 ? 1 : size) : nullptr) return at;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, size_t) noexcept { std::free(at); }
#else
constexpr bool kMayFail = false;
#endif

namespace torch::comms::transport {
namespace {

// Delivers one eager message while this rank has no memory for it.
class OneMessageConnection final : public PeerConnection {
 public:
  uint32_t max_payload() const noexcept override { return kMaxPayload; }
  bool try_send(const Frame&, std::span<const ConstBytes>, uint32_t*) noexcept override {
    return true;
  }
  ReceiveStatus receive(FrameSink& sink) noexcept override {
    if (std::exchange(is_delivered_, true)) return ReceiveStatus::kNothing;
    Frame frame;
    frame.bytes = static_cast<uint32_t>(payload_.size());
    has_memory = false;
    sink.deliver(frame, payload_);
    has_memory = true;
    return ReceiveStatus::kSome;
  }
  const std::string& error_text() const noexcept override { return never_; }

 private:
  bool is_delivered_ = false;
  const std::vector<std::byte> payload_ = std::vector<std::byte>(1024);
  const std::string never_;
};

TEST(PeerProtocol, MemoryThatThisRankLacksIsNotThePeersProtocolError) {
  if (!kMayFail) GTEST_SKIP() << "sanitizers bring their own operator new";
  const RegionTable regions;
  const ClosedStreams closed;
  PeerProtocol peer(1, regions, {.eager_bytes = 1024, .eager_credit = 64 * 1024}, closed);
  peer.open(std::make_unique<OneMessageConnection>());
  EXPECT_TRUE(peer.progress());
  ASSERT_NE(peer.failure(), nullptr);
  EXPECT_EQ(peer.failure()->code, Errc::kResourceExhausted);
  EXPECT_EQ(peer.failure()->reason, "rank 1: out of memory for messages of the peer");
}

}  // namespace
}  // namespace torch::comms::transport
