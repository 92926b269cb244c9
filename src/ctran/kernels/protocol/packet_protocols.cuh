#pragma once

#include "ctran/kernels/protocol/launch_context.cuh"
#include "ctran/kernels/protocol/tiling.hpp"

// Packet protocols: how a warp writes its tile into a slot of a peer, and how the peer detects it.
// A tile is kVectors vectors of each lane; `ring` selects one of the worker's slots.
namespace torch::comms::ctran::kernels {

// Stores four LL128 lines, one by 8 lanes each. The lanes that holds_flag() selects carry the flag.
__device__ __forceinline__ void store_ll128(char* to, uint32_t lane, Vector16 v, uint64_t flag) {
  if (holds_flag(lane)) {
    v.z = static_cast<uint32_t>(flag), v.w = static_cast<uint32_t>(flag >> 32);
  }
  __syncwarp();
  store_volatile(to, v);
}
__device__ __forceinline__ Vector16 load_ll128(const char* from) {
  __syncwarp();  // a line is read whole as well
  return load_volatile(from);
}
__device__ __forceinline__ bool has_flag(const Vector16& raw, uint32_t lane, uint64_t flag) {
  return !holds_flag(lane) ||
         (raw.z == static_cast<uint32_t>(flag) && raw.w == static_cast<uint32_t>(flag >> 32));
}

// Where the slots of a worker are, for LL and LL128. Constructed once the launch has begun.
template <PacketProtocol kKind_>
class WorkerSlots {
 public:
  static constexpr PacketProtocol kKind = kKind_;
  static constexpr bool kLean = false, kOneStep = kKind_ == PacketProtocol::kLL;
  static constexpr size_t kTile = tile_bytes(kKind_);

  __device__ __forceinline__ WorkerSlots(const CollectiveParams& p, const LaunchContext& s)
      : p_(p), s_(s) {}

  // Returns the index of this warp among the workers; workers() returns their number.
  __device__ __forceinline__ static int worker() {
    return static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kWarp);
  }
  __device__ __forceinline__ static int workers() {
    return static_cast<int>(gridDim.x * blockDim.x / kWarp);
  }

 protected:
  const CollectiveParams& p_;
  const LaunchContext& s_;
  const int worker_ = worker();
  const uint32_t lane_ = lane();

  __device__ __forceinline__ static uint32_t lane() { return threadIdx.x % kWarp; }
  __device__ __forceinline__ char* slot(int receiver, int source, int index) const {
    return p_.workspace[receiver] + p_.slots_offset +
           slot_offset(kKind, p_.size, worker_, static_cast<int>(s_.launch & 1), index, receiver,
                       source);
  }
};

// LL: 4 bytes of data beside 4 bytes of flag, which arrive together. Each warp has one tile in a
// launch.
struct LLProtocol : WorkerSlots<PacketProtocol::kLL> {
  static constexpr int kVectors = 1;
  static constexpr bool kSkipsEmpty = true;  // lanes without data send nothing
  struct Raw {
    Vector16 low, high;
  };

  __device__ __forceinline__ LLProtocol(const CollectiveParams& p, const LaunchContext& s)
      : WorkerSlots(p, s) {
    const uint64_t fingerprint = fingerprint_in(s.arrival);
    flag_ = {ll_flag(s.launch, fingerprint, 0), ll_flag(s.launch, fingerprint, 1),
             ll_flag(s.launch, fingerprint, 2), ll_flag(s.launch, fingerprint, 3)};
  }

  __device__ __forceinline__ static uint32_t width() { return 16; }
  __device__ __forceinline__ static size_t offset(int) { return lane() * 16; }
  __device__ __forceinline__ void put(int peer, int, uint64_t, int, const Vector16& v) const {
    char* to = slot(peer, p_.rank, 0) + lane_ * 16;
    store_volatile(to, Vector16{v.x, flag_.x, v.y, flag_.y});
    store_volatile(to + kLLSlot / 2, Vector16{v.z, flag_.z, v.w, flag_.w});
  }
  __device__ __forceinline__ Raw load_raw(int source, int, int) const {
    const char* from = slot(p_.rank, source, 0) + lane_ * 16;
    return {load_volatile(from), load_volatile(from + kLLSlot / 2)};
  }
  __device__ __forceinline__ bool has_landed(const Raw& raw, uint64_t) const {
    return raw.low.y == flag_.x && raw.low.w == flag_.y && raw.high.y == flag_.z &&
           raw.high.w == flag_.w;
  }
  __device__ __forceinline__ static Vector16 data(const Raw& raw) {
    return {raw.low.x, raw.low.z, raw.high.x, raw.high.z};
  }
  __device__ __forceinline__ bool acknowledged(uint32_t, uint64_t) const { return true; }
  __device__ __forceinline__ void acknowledge(uint32_t, uint64_t) const {}

 private:
  Vector16 flag_;  // one for each 4 bytes of data
};

// LL128: lines of 128 bytes with 8 bytes of flag. A warp writes a line whole, and NVLink keeps it
// whole.
template <PacketProtocol kLines>
struct BasicLL128Protocol : WorkerSlots<kLines> {
  using Base = WorkerSlots<kLines>;
  static constexpr int kVectors =
      kLines == PacketProtocol::kLongLL128 ? kLongLL128Vectors : kLL128Vectors;
  static constexpr bool kSkipsEmpty = false;
  static constexpr bool kWide = kLines == PacketProtocol::kWideLL128;
  using Raw = Vector16;

  __device__ __forceinline__ BasicLL128Protocol(const CollectiveParams& p, const LaunchContext& s)
      : Base(p, s),
        flag_(ll128_flag(s.launch, fingerprint_in(s.arrival), static_cast<int>(this->lane_ / 8))) {}

  __device__ __forceinline__ static uint32_t width() {
    return static_cast<uint32_t>(ll128_width(Base::lane()));
  }
  __device__ __forceinline__ static size_t offset(int k) {
    return k * (Base::kTile / kVectors) + ll128_offset(Base::lane(), kWide);
  }
  __device__ __forceinline__ void put(int peer, int ring, uint64_t step, int k,
                                      const Vector16& v) const {
    store_ll128(this->slot(peer, this->p_.rank, ring) + k * 512 + this->lane_ * 16, this->lane_, v,
                flag(step));
  }
  __device__ __forceinline__ Raw load_raw(int source, int ring, int k) const {
    return load_ll128(this->slot(this->p_.rank, source, ring) + k * 512 + this->lane_ * 16);
  }
  __device__ __forceinline__ bool has_landed(const Raw& raw, uint64_t step) const {
    return has_flag(raw, this->lane_, flag(step));
  }
  __device__ __forceinline__ static Vector16 data(const Raw& raw) { return raw; }

  // Waits until all of `peers` have acknowledged `steps` steps.
  // Returns: false if the launch has to stop.
  __device__ __forceinline__ bool acknowledged(uint32_t peers, uint64_t steps) const {
    const uint64_t wanted = tag_of(this->s_.launch, steps);
    for (StopChecker stop_checker;;) {
      const uint32_t missing = __ballot_sync(
          ~0u, is_of(peers) &&
                   !has_reached(load_relaxed(ack(this->p_.rank, static_cast<int>(this->lane_))),
                                wanted));
      if (missing == 0) return true;
      if (stop_checker.must_stop(this->p_, this->s_, __ffs(static_cast<int>(missing)) - 1))
        return false;
    }
  }
  __device__ __forceinline__ void acknowledge(uint32_t peers, uint64_t steps) const {
    __syncwarp();
    if (is_of(peers))
      store_relaxed(ack(static_cast<int>(this->lane_), this->p_.rank),
                    tag_of(this->s_.launch, steps));
  }

 private:
  __device__ __forceinline__ uint64_t flag(uint64_t step) const { return flag_ | step; }
  __device__ __forceinline__ bool is_of(uint32_t ranks) const {
    return this->lane_ < kMaxRanks && (ranks >> this->lane_ & 1) != 0;
  }
  __device__ __forceinline__ uint64_t* ack(int at, int receiver) const {
    return reinterpret_cast<uint64_t*>(this->p_.workspace[at] + this->p_.acks +
                                       ack_offset(this->worker_, receiver));
  }

  const uint64_t flag_;  // of step 0
};
using LL128Protocol = BasicLL128Protocol<PacketProtocol::kLL128>;
using LongLL128Protocol = BasicLL128Protocol<PacketProtocol::kLongLL128>;
using WideLL128Protocol = BasicLL128Protocol<PacketProtocol::kWideLL128>;

// The protocol of a lean kernel, see KernelShape::is_lean.
template <class Protocol>
struct Lean : Protocol {
  using Protocol::Protocol;
  static constexpr bool kLean = true;
};

}  // namespace torch::comms::ctran::kernels
