#pragma once

#include "ctran/kernels/tiles.cuh"

// One hop: every rank's tiles to whom they are for, and those of others as they come.
namespace torch::comms::ctran::kernels {

template <class Wire, class F, int N>
class OneShot {
 public:
  __device__ OneShot(const Params& p, const Session& s) : p_(p), s_(s), wire_(p, s) {}

  __device__ __forceinline__ bool run() {
    if (p_.steps == 0 || !send(0)) return p_.steps == 0;
#pragma unroll 1
    for (uint64_t step = 0; step < p_.steps; ++step)
      if ((step + 1 < p_.steps && !send(step + 1)) || !receive(step)) return false;
    return true;
  }

 private:
  __device__ __forceinline__ size_t tile_of(uint64_t step) const {
    return step * Wire::workers() + wire_.worker();
  }

  __device__ __forceinline__ bool send(uint64_t step) const {
    const size_t tile = tile_of(step), at = tile * Wire::kTile;
    if (tile >= p_.tiles || p_.send_to == 0) return true;
    if (p_.acknowledges && step >= kRing && !wire_.acknowledged(p_.send_to, step - kRing + 1))
      return false;
    Vector16 v[Wire::kVectors];
    if (p_.send_stride == 0) load_tile(p_.input, at, v);
#pragma unroll 1
    for (int i = 1; i < p_.size; ++i) {
      const int peer = p_.rank + i < p_.size ? p_.rank + i : p_.rank + i - p_.size;
      if ((p_.send_to >> peer & 1) == 0) continue;
      if (p_.send_stride != 0) load_tile(p_.input + peer * p_.send_stride, at, v);
#pragma unroll
      for (int k = 0; k < Wire::kVectors; ++k)
        if (is_there(wire_, at, p_.bytes, k)) wire_.put(peer, step % kRing, step, k, v[k]);
    }
    return true;
  }

  __device__ __forceinline__ void load_tile(const char* from, size_t at,
                                            Vector16 (&v)[Wire::kVectors]) const {
#pragma unroll
    for (int k = 0; k < Wire::kVectors; ++k)
      v[k] = load_own<Wire, F>(p_, s_, wire_, from, at, p_.bytes, k);
  }

  __device__ __forceinline__ void store_vector(char* to, size_t at, int k,
                                               const Vector16& v) const {
    store(p_, to, at + wire_.offset(k), p_.bytes, wire_.width(), v);
  }

  __device__ __forceinline__ bool receive(uint64_t step) const {
    const size_t tile = tile_of(step), at = tile * Wire::kTile;
    if (tile >= p_.tiles) return true;
    if (F::kMoves && p_.own_to != nullptr)
      for (int k = 0; k < Wire::kVectors; ++k)
        store_vector(p_.own_to, at, k,
                     load(p_, p_.own, at + wire_.offset(k), p_.bytes, wire_.width()));
    if (p_.receive_from == 0) return true;
    bool done = false;
    if constexpr (F::kMoves)
      done = take_tile<Wire, N>(p_, s_, wire_, p_.receive_from, step % kRing, step, at, p_.bytes,
                                [&](int source, int k, const Vector16& v) {
                                  store_vector(p_.output + source * p_.receive_stride, at, k, v);
                                });
    else
      done = reduce_tile<Wire, F, N>(
          p_, s_, wire_, p_.receive_from, step % kRing, step, at, p_.bytes,
          [&](int k) { return load_own<Wire, F>(p_, s_, wire_, p_.own, at, p_.bytes, k); },
          [&](int k, const Vector16& v) { store_vector(p_.output, at, k, v); });
    if (done && p_.acknowledges) wire_.acknowledge(p_.receive_from, step + 1);
    return done;
  }

  const Params& p_;
  const Session& s_;
  Wire wire_;
};

}  // namespace torch::comms::ctran::kernels
