#include "transport/self_transport.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "transport/protocol/framed_transport.hpp"

namespace torch::comms::transport {
namespace {

constexpr uint32_t kChunkBytes = 256 * 1024;
constexpr size_t kMaxFrames = 16;

// A connection that delivers what was sent to its own sender.
class LoopbackConnection final : public PeerConnection {
 public:
  uint32_t max_payload() const noexcept override { return kChunkBytes; }

  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t*) noexcept override {
    if (frames_.size() >= kMaxFrames) return false;
    LoopbackFrame entry{frame, {}};
    for (const auto& piece : payload)
      entry.payload.insert(entry.payload.end(), piece.begin(), piece.end());
    frames_.push_back(std::move(entry));
    return true;
  }

  ReceiveStatus receive(FrameSink& sink) noexcept override {
    if (frames_.empty()) return ReceiveStatus::kNothing;
    for (size_t count = frames_.size(); count > 0; --count) {
      const LoopbackFrame entry = std::move(frames_.front());
      frames_.pop_front();
      if (!sink.deliver(entry.frame, entry.payload)) break;
    }
    return ReceiveStatus::kSome;
  }

  const std::string& error_text() const noexcept override { return error_text_; }
  bool prepare_sleep(bool wants_room) noexcept override { return frames_.empty() && !wants_room; }

 private:
  struct LoopbackFrame {
    Frame frame;
    std::vector<std::byte> payload;
  };
  std::deque<LoopbackFrame> frames_;
  std::string error_text_;
};

TransportOptions with_defaults(TransportOptions options) {
  if (options.eager_bytes == 0) options.eager_bytes = 16u << 10;
  options.eager_bytes = std::min<uint64_t>(options.eager_bytes, kChunkBytes);
  return options;
}

class SelfTransport final : public FramedTransport {
 public:
  explicit SelfTransport(const TransportOptions& options)
      : FramedTransport(with_defaults(options),
                        {"self", options.rank, random_number(), host_identity(), {}}),
        event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event_) throw CommError(Errc::kResourceExhausted, "eventfd: no descriptor left");
  }

  std::string_view name() const noexcept override { return "self"; }
  TransportCapabilities capabilities() const override {
    return {.eager_bytes = options_.eager_bytes, .chunk_bytes = kChunkBytes};
  }
  int event_fd() const noexcept override { return event_.get(); }  // never readable

 private:
  void start_connection(int peer, const Endpoint&) override {
    if (peer != options_.rank)
      throw CommError(Errc::kInvalidArgument, "the self transport connects only to its own rank",
                      {.rank = options_.rank, .peer = peer});
    open(peer, std::make_unique<LoopbackConnection>());
  }
  base::FileDescriptor event_;
};

}  // namespace

std::unique_ptr<Transport> make_self_transport(const TransportOptions& options) {
  return std::make_unique<SelfTransport>(options);
}

}  // namespace torch::comms::transport
