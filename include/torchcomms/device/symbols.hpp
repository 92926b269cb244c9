#pragma once

#include <torchcomms/device/transport.hpp>
#include <torchcomms/device/window.hpp>

// C functions over the classes of window.hpp and transport.hpp, for kernel compilers that link LLVM
// bitcode, such as Triton. There, all threads of a block make each call. CUDA C++ code should use
// the classes.
//
// A source is a handle from register_local_buffer(), whose bounds are checked, or a plain address
// of this device. Waits end when the value is at least `expected`.
// Returns: 0 or a negative Result, unless stated otherwise.
// Threads: all threads of the block must call the functions with names ending in _block or _direct,
// and all transport functions except the properties. In the other functions each thread fences and
// waits by itself, and thread 0 resets.

#if defined(__CUDA__) && !defined(__CUDACC__)
#define TC_SYMBOL extern "C" __attribute__((used)) TC_DEVICE
#else
#define TC_SYMBOL extern "C" TC_DEVICE
#endif

namespace torchcomms::device {

TC_DEVICE const TorchCommDeviceWindow<>& window_at(const void* handle) {
  return *static_cast<const TorchCommDeviceWindow<>*>(handle);
}
TC_DEVICE const TorchCommDeviceTransport& transport_at(const void* handle) {
  return *static_cast<const TorchCommDeviceTransport*>(handle);
}

// Returns: the address of the source's bytes; null if they exceed its bounds.
TC_DEVICE const char* source_at(const void* handle, const void* source, uint64_t offset,
                                uint64_t bytes) {
  const auto* const buffer = window_at(handle).buffer(source);
  if (buffer == nullptr) return static_cast<const char*>(source) + offset;
  return is_within(offset, bytes, buffer->size)
             ? static_cast<const char*>(buffer->base_ptr) + offset
             : nullptr;
}

TC_DEVICE int put_block(const void* handle, uint64_t dst_offset, const void* source,
                        uint64_t src_offset, int dst_rank, uint64_t bytes, int signal_id,
                        int counter_id) {
  const auto* const from = source_at(handle, source, src_offset, bytes);
  if (from == nullptr) return kOutOfBounds;
  return window_at(handle).put(dst_offset, from, dst_rank, bytes, signal_id, counter_id,
                               CoopScope::BLOCK);
}

// Puts the data in chunks, which the warps of the block take in turn.
TC_DEVICE int put_chunks(const void* handle, uint64_t dst_offset, const void* source,
                         uint64_t src_offset, int dst_rank, uint64_t bytes, uint64_t chunk_bytes) {
  const auto& window = window_at(handle);
  const auto* const from = source_at(handle, source, src_offset, bytes);
  if (from == nullptr) return kOutOfBounds;
  const auto refused = window.check_put(dst_offset, dst_rank, bytes);
  if (refused != kDone || bytes == 0) return refused;
  const uint64_t chunk = chunk_bytes == 0 || chunk_bytes > bytes ? bytes : chunk_bytes;
  const Group block(CoopScope::BLOCK);
  block.sync();
  for (uint64_t at = block.warp() * chunk; at < bytes; at += block.warps() * chunk)
    (void)window.put(dst_offset + at, from + at, dst_rank, bytes - at < chunk ? bytes - at : chunk,
                     -1, -1, CoopScope::WARP);
  return kDone;
}

// Translates the comparison number of torchcomms_transport_wait_signal.
// Returns: false for any other number.
TC_ANYWHERE bool comparison_of(int number, CmpOp& op) {
  constexpr CmpOp kOps[] = {CmpOp::EQ, CmpOp::GT, CmpOp::LT, CmpOp::GE, CmpOp::LE, CmpOp::NE};
  if (number < 0 || number > 5) return false;
  op = kOps[number];
  return true;
}

}  // namespace torchcomms::device

TC_SYMBOL int torchcomms_put_block(void* handle, unsigned long long dst_offset, void* src_buf,
                                   unsigned long long src_offset, int dst_rank,
                                   unsigned long long bytes, int signal_id, int counter_id) {
  return torchcomms::device::put_block(handle, dst_offset, src_buf, src_offset, dst_rank, bytes,
                                       signal_id, counter_id);
}
TC_SYMBOL int torchcomms_put_block_direct(void* handle, unsigned long long dst_offset,
                                          void* registered_src, unsigned long long src_offset,
                                          int dst_rank, unsigned long long bytes) {
  return torchcomms::device::put_block(handle, dst_offset, registered_src, src_offset, dst_rank,
                                       bytes, -1, -1);
}
TC_SYMBOL int torchcomms_put_warp_chunked_direct(void* handle, unsigned long long dst_offset,
                                                 void* registered_src,
                                                 unsigned long long src_offset, int dst_rank,
                                                 unsigned long long bytes,
                                                 unsigned long long chunk_size) {
  return torchcomms::device::put_chunks(handle, dst_offset, registered_src, src_offset, dst_rank,
                                        bytes, chunk_size);
}
TC_SYMBOL int torchcomms_self_copy_block(void* dst, unsigned long long dst_offset, void* src,
                                         unsigned long long src_offset, unsigned long long bytes) {
  using namespace torchcomms::device;
  const Group block(CoopScope::BLOCK);
  block.sync();
  copy_bytes(static_cast<char*>(dst) + dst_offset, static_cast<const char*>(src) + src_offset,
             bytes, block);
  block.sync();
  return kDone;
}
TC_SYMBOL int torchcomms_signal_block(void* handle, int peer, int signal_id,
                                      unsigned long long value) {
  using namespace torchcomms::device;
  return window_at(handle).signal(peer, signal_id, SignalOp::ADD, value, CoopScope::BLOCK);
}
TC_SYMBOL int torchcomms_flush_block(void* handle) {
  using namespace torchcomms::device;
  return window_at(handle).flush(CoopScope::BLOCK);
}
TC_SYMBOL int torchcomms_fence(void* handle) {
  return torchcomms::device::window_at(handle).fence();
}
TC_SYMBOL int torchcomms_barrier_block(void* handle, int barrier_id) {
  using namespace torchcomms::device;
  return window_at(handle).barrier(barrier_id, CoopScope::BLOCK);
}
TC_SYMBOL int torchcomms_wait_signal(void* handle, int id, unsigned long long expected) {
  using namespace torchcomms::device;
  return window_at(handle).wait_signal(id, CmpOp::GE, expected);
}
TC_SYMBOL int torchcomms_wait_signal_from(void* handle, int peer, int signal_id,
                                          unsigned long long expected) {
  using namespace torchcomms::device;
  return window_at(handle).wait_signal_from(peer, signal_id, CmpOp::GE, expected);
}
TC_SYMBOL int torchcomms_wait_signal_from_block(void* handle, int peer, int signal_id,
                                                unsigned long long expected) {
  using namespace torchcomms::device;
  return window_at(handle).wait_signal_from(peer, signal_id, CmpOp::GE, expected, CoopScope::BLOCK);
}
TC_SYMBOL int torchcomms_wait_counter(void* handle, int id, unsigned long long expected) {
  using namespace torchcomms::device;
  return window_at(handle).wait_counter(id, CmpOp::GE, expected);
}
TC_SYMBOL int torchcomms_wait_counter_block(void* handle, int id, unsigned long long expected) {
  using namespace torchcomms::device;
  return window_at(handle).wait_counter(id, CmpOp::GE, expected, CoopScope::BLOCK);
}
TC_SYMBOL unsigned long long torchcomms_read_signal(void* handle, int id) {
  return torchcomms::device::window_at(handle).read_signal(id);
}
TC_SYMBOL unsigned long long torchcomms_read_counter(void* handle, int id) {
  return torchcomms::device::window_at(handle).read_counter(id);
}
TC_SYMBOL int torchcomms_reset_signal(void* handle, int id) {
  using namespace torchcomms::device;
  return Group(CoopScope::BLOCK).is_leader() ? window_at(handle).reset_signal(id) : kDone;
}
TC_SYMBOL int torchcomms_reset_counter(void* handle, int id) {
  using namespace torchcomms::device;
  return Group(CoopScope::BLOCK).is_leader() ? window_at(handle).reset_counter(id) : kDone;
}
TC_SYMBOL int torchcomms_rank(void* handle) { return torchcomms::device::window_at(handle).rank(); }
TC_SYMBOL int torchcomms_num_ranks(void* handle) {
  return torchcomms::device::window_at(handle).num_ranks();
}
TC_SYMBOL void* torchcomms_base(void* handle) {
  return torchcomms::device::window_at(handle).base();
}
TC_SYMBOL unsigned long long torchcomms_size(void* handle) {
  return torchcomms::device::window_at(handle).size();
}
// Returns: null for a rank that does not exist.
TC_SYMBOL void* torchcomms_get_nvlink_address(void* handle, int peer) {
  return torchcomms::device::window_at(handle).get_nvlink_address(peer);
}
// Returns: null, because windows have no multicast.
TC_SYMBOL void* torchcomms_get_multimem_address(void* handle, unsigned long long offset) {
  return torchcomms::device::window_at(handle).get_multimem_address(offset);
}

// `op`: 0 sets, 1 adds.
TC_SYMBOL int torchcomms_transport_signal(void* handle, int peer, int signal_id, int op,
                                          unsigned long long value) {
  using namespace torchcomms::device;
  if (op != 0 && op != 1) return kInvalid;
  return transport_at(handle).signal(peer, signal_id, op == 0 ? SignalOp::SET : SignalOp::ADD,
                                     value, CoopScope::BLOCK);
}
// `op`: 0 EQ, 1 GT, 2 LT, 3 GE, 4 LE, 5 NE.
TC_SYMBOL int torchcomms_transport_wait_signal(void* handle, int peer, int signal_id, int op,
                                               unsigned long long value) {
  using namespace torchcomms::device;
  CmpOp comparison{};
  if (!comparison_of(op, comparison)) return kInvalid;
  return transport_at(handle).wait_signal(peer, signal_id, comparison, value, CoopScope::BLOCK);
}
TC_SYMBOL int torchcomms_transport_send(void* handle, int peer, void* ptr,
                                        unsigned long long nbytes,
                                        unsigned long long max_signal_bytes) {
  return torchcomms::device::transport_at(handle).send(peer, ptr, nbytes, max_signal_bytes);
}
TC_SYMBOL int torchcomms_transport_recv(void* handle, int peer, void* ptr,
                                        unsigned long long nbytes,
                                        unsigned long long max_signal_bytes) {
  return torchcomms::device::transport_at(handle).recv(peer, ptr, nbytes, max_signal_bytes);
}
TC_SYMBOL int torchcomms_transport_barrier(void* handle, int peer, int barrier_id) {
  using namespace torchcomms::device;
  return transport_at(handle).barrier(peer, barrier_id, CoopScope::BLOCK);
}
TC_SYMBOL int torchcomms_transport_my_rank(void* handle) {
  return torchcomms::device::transport_at(handle).my_rank();
}
TC_SYMBOL int torchcomms_transport_n_ranks(void* handle) {
  return torchcomms::device::transport_at(handle).n_ranks();
}
TC_SYMBOL int torchcomms_transport_num_nvl_peers(void* handle) {
  return torchcomms::device::transport_at(handle).num_nvl_peers();
}
// Returns: 0 for this rank, 1 for NVLink; negative for a rank that does not exist.
TC_SYMBOL int torchcomms_transport_get_type(void* handle, int rank) {
  return torchcomms::device::transport_at(handle).type(rank);
}

#undef TC_SYMBOL
