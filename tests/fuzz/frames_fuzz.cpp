// Frames of a peer that means ill, against everything that a link keeps of it: messages with and
// without their receives, grants, credit, memory that is open to it.

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "fuzz.hpp"
#include "transport/protocol/framed_transport.hpp"

namespace tct = torch::comms::transport;
using torch::comms::fuzz::Input;
using torch::comms::fuzz::require;

namespace {

constexpr uint32_t kMostPayload = 4096;
constexpr unsigned kLanes = 2;

// Hands over the input as frames. Half of them are put in order, to get past the count of frames.
class HostileChannel final : public tct::PeerConnection {
 public:
  HostileChannel(Input& input, const uint32_t& key) : input_(input), key_(key) {}
  unsigned channels() const noexcept override { return kLanes; }
  uint32_t max_payload() const noexcept override { return kMostPayload; }

  bool try_send(const tct::Frame& frame, std::span<const tct::ConstBytes> payload,
                uint32_t*) noexcept override {
    uint64_t bytes = 0;
    for (const auto& piece : payload)
      for (const auto byte : piece) sum_ += static_cast<uint8_t>(byte), ++bytes;
    require(bytes == frame.bytes && tct::frame_error(frame, kMostPayload, kLanes) == nullptr);
    return ++sent_ % 5 != 0;  // there is not always room
  }

  ReceiveStatus receive(tct::FrameSink& sink) noexcept override {
    if (input_.empty()) return ReceiveStatus::kBroken;
    auto frame = input_.take<tct::Frame>();
    frame.bytes %= 2 * kMostPayload;
    frame.channel %= kLanes + 1;
    if (frame.spare % 2 == 0) {
      frame.spare = 0;
      if (frame.channel < kLanes) frame.ordinal = ordinals_[frame.channel]++;
    }
    if (frame.kind >= tct::FrameKind::kPut && frame.key == 0) frame.key = key_;  // it was told
    const auto text = input_.take(std::min<size_t>(frame.bytes, 64));
    payload_.assign(frame.bytes, std::byte{0x5a});
    std::transform(text.begin(), text.end(), payload_.begin(),
                   [](char byte) { return static_cast<std::byte>(byte); });
    // As links do: a header that cannot be is not given a place.
    tct::Bytes place;
    if (tct::frame_error(frame, kMostPayload, kLanes) == nullptr)
      place = sink.payload_target(frame);
    if (!place.empty()) {
      require(place.size() == frame.bytes);
      std::copy(payload_.begin(), payload_.end(), place.begin());
    }
    const bool more =
        sink.deliver(frame, place.empty() ? tct::ConstBytes(payload_) : tct::ConstBytes(place));
    return more ? ReceiveStatus::kSome : ReceiveStatus::kNothing;
  }
  const std::string& error_text() const noexcept override { return broken_; }

 private:
  Input& input_;
  const uint32_t& key_;
  std::array<uint32_t, kLanes> ordinals_{};
  std::vector<std::byte> payload_;
  std::string broken_ = "the input has ended";
  uint64_t sent_ = 0, sum_ = 0;
};

// A link with this channel to rank 1.
class HostileTransport final : public tct::FramedTransport {
 public:
  HostileTransport(const tct::TransportOptions& options, Input& input)
      : FramedTransport(options, {"hostile", 0, 1, "", {}}), input_(input) {}
  ~HostileTransport() override { close_peers(); }
  std::string_view name() const noexcept override { return "hostile"; }
  tct::TransportCapabilities capabilities() const override { return {}; }
  int event_fd() const noexcept override { return -1; }

 private:
  void start_connection(int peer, const tct::Endpoint&) override {
    open(peer, std::make_unique<HostileChannel>(input_, key));
  }
  Input& input_;

 public:
  uint32_t key = 0;  // of the memory that is open
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  // They outlive the link, which writes into them until its end.
  std::vector<std::byte> open(256), small(100), large(3000), early(100), out(5000);
  std::array<tct::Request, 5> requests;
  tct::TransportOptions options{.rank = 0, .size = 2, .eager_bytes = 512, .eager_credit = 4096};
  HostileTransport link(options, input);
  const auto memory = link.register_memory(open);
  link.key = memory->handle().key;
  link.connect(1, {"hostile", 1, 1, "", {}});
  link.receive(requests[0], 1, 1, tct::Bytes(small), 7);
  link.receive(requests[1], 1, 1, tct::Bytes(large), 7);
  link.receive(requests[2], 1, 2, tct::Bytes(large).first(1000), 7);
  link.send(requests[3], 1, 1, tct::ConstBytes(out), 7);
  link.close_streams(3, 3, torch::comms::Errc::kFinalized);
  for (int turn = 0; turn < 64 && link.failure(1) == nullptr; ++turn) {
    link.progress();
    // What came before its receive finds one.
    if (turn == 8) link.receive(requests[4], 1, 4, tct::Bytes(early), 7);
    if (turn == 16) link.close_streams(4, 4, torch::comms::Errc::kFinalized);
  }
  for (const auto& request : requests)
    if (request.is_ok()) require(request.bytes() <= out.size());
  return 0;
}
