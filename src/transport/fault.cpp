#include "transport/fault.hpp"

#include <deque>
#include <vector>

#include "base/os/log.hpp"

namespace torch::comms::transport {
namespace {

constexpr size_t kMaxHeld = 256;

// SplitMix64 [Steele, Lea, Flood, OOPSLA 2014].
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next_below(uint64_t limit) noexcept {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % limit;
  }
  bool happens(int of_thousand) noexcept {
    return next_below(1000) < static_cast<uint64_t>(of_thousand);
  }

 private:
  uint64_t state_;
};

class FaultConnection final : public PeerConnection {
 public:
  FaultConnection(std::unique_ptr<PeerConnection> inner, const FaultPlan& plan, uint64_t seed)
      : inner_(std::move(inner)), plan_(plan), random_(seed) {}

  unsigned channels() const noexcept override { return inner_->channels(); }
  uint32_t max_payload() const noexcept override { return inner_->max_payload(); }

  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t* frames_in_use) noexcept override {
    if (!error_text_.empty() || held_.size() >= kMaxHeld) return false;
    if (held_.empty() && wait_ == 0 &&
        !random_.happens(plan_.drop + plan_.duplicate + plan_.delay + plan_.reset))
      return inner_->try_send(frame, payload, frames_in_use);
    return inject_fault(frame, payload);
  }

  ReceiveStatus receive(FrameSink& sink) noexcept override {
    if (!error_text_.empty()) return ReceiveStatus::kBroken;
    return inner_->receive(sink);
  }

  bool flush() noexcept override {
    bool moved = inner_->flush();
    if (wait_ > 0) {
      --wait_;
      return true;
    }
    while (!held_.empty() && error_text_.empty()) {
      const auto& next = held_.front();
      const ConstBytes payload(next.payload);
      // At most one copy is lent: the inner connection reads from it until it has sent the frame.
      if (frames_in_use_ > 0 || !inner_->try_send(next.frame, {&payload, 1}, &frames_in_use_))
        break;
      if (frames_in_use_ > 0) payload_in_use_ = std::move(held_.front().payload);
      held_.pop_front();
      moved = true;
    }
    return moved;
  }

  Errc error_code() const noexcept override {
    return error_text_.empty() ? inner_->error_code() : Errc::kPeerFailed;
  }
  const std::string& error_text() const noexcept override {
    return error_text_.empty() ? inner_->error_text() : error_text_;
  }
  bool supports_remote_read() const noexcept override { return inner_->supports_remote_read(); }
  std::shared_ptr<ReadValidityWords> read_validity_words() noexcept override {
    return inner_->read_validity_words();
  }
  RemoteReadStatus remote_read(const RemoteReadDescriptor& offer, uint64_t offset,
                               std::span<const Bytes> into, bool past_caches) noexcept override {
    return inner_->remote_read(offer, offset, into, past_caches);
  }
  void cancel_writes(ConstBytes range) noexcept override { inner_->cancel_writes(range); }
  bool is_delivered() const noexcept override { return inner_->is_delivered(); }
  bool has_unflushed() const noexcept override { return inner_->has_unflushed() || !held_.empty(); }
  bool prepare_sleep(bool wants_room) noexcept override {
    return inner_->prepare_sleep(wants_room) && held_.empty() && wait_ == 0;
  }
  void finish_sleep() noexcept override { inner_->finish_sleep(); }
  void wake_peer() noexcept override { inner_->wake_peer(); }

 private:
  struct HeldFrame {
    Frame frame;
    std::vector<std::byte> payload;
  };

  void hold(const Frame& frame, std::span<const ConstBytes> payload) {
    HeldFrame held{frame, {}};
    for (const auto& piece : payload)
      held.payload.insert(held.payload.end(), piece.begin(), piece.end());
    held_.push_back(std::move(held));
  }

  // Injects one of the plan's faults. Without a fault the frame waits behind the frames that wait
  // already, so that channels stay in order.
  bool inject_fault(const Frame& frame, std::span<const ConstBytes> payload) noexcept {
    const auto total = plan_.drop + plan_.duplicate + plan_.delay + plan_.reset;
    const bool queued = !held_.empty() || wait_ > 0;
    const auto fault = queued && !random_.happens(total)
                           ? -1
                           : static_cast<int>(random_.next_below(static_cast<uint64_t>(total)));
    if (fault >= 0 && fault < plan_.reset) {
      error_text_ = "injected reset";
      return false;
    }
    if (fault >= plan_.reset && fault < plan_.reset + plan_.drop) return true;
    hold(frame, payload);
    if (fault < 0) return true;
    if (fault < plan_.reset + plan_.drop + plan_.duplicate)
      hold(frame, payload);
    else
      wait_ += 1 + static_cast<int>(random_.next_below(static_cast<uint64_t>(plan_.max_delay)));
    return true;
  }

  // Declared before `inner_`, which may still read the copy, so that the copy outlives it.
  std::vector<std::byte> payload_in_use_;
  uint32_t frames_in_use_ = 0;
  std::unique_ptr<PeerConnection> inner_;
  FaultPlan plan_;
  SplitMix64 random_;
  std::deque<HeldFrame> held_;
  int wait_ = 0;  // flush() calls until the next held frame may go
  std::string error_text_;
};

}  // namespace

std::string FaultPlan::describe() const {
  return "seed " + std::to_string(seed) + ": drop " + std::to_string(drop) + ", duplicate " +
         std::to_string(duplicate) + ", delay " + std::to_string(delay) + " (up to " +
         std::to_string(max_delay) + " steps), reset " + std::to_string(reset) + ", of 1000 frames";
}

std::function<std::unique_ptr<PeerConnection>(int, std::unique_ptr<PeerConnection>)> inject_faults(
    const FaultPlan& plan, int rank) {
  base::log(base::LogLevel::kInfo, "faults are injected, " + plan.describe());
  return [plan, rank](int peer,
                      std::unique_ptr<PeerConnection> inner) -> std::unique_ptr<PeerConnection> {
    const auto pair = (static_cast<uint64_t>(rank) << 32) + static_cast<uint64_t>(peer);
    return std::make_unique<FaultConnection>(std::move(inner), plan, plan.seed * 1'000'003 + pair);
  };
}

}  // namespace torch::comms::transport
