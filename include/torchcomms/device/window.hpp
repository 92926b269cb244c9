#pragma once

#include <torchcomms/device/copy.hpp>
#include <torchcomms/device/waiting.hpp>

namespace torchcomms::device {

// The backends that have such windows; both use the same state.
struct CtranBackend {
  using Comm = TeamState;
  using Window = WindowState;
};
struct NCCLXBackend : CtranBackend {};

// A window for kernels, at the address that get_device_window() returns. Only streams order its
// calls with operations of the communicator.
//
// Failure: calls return 0, or a negative Result if they did not do their work.
// Limits: a wait ends within 1 ms after the communicator is aborted or has failed, and after its
// timeout, which ends the communicator. Kernels that wait for each other must run at the same time.
// Order: a put copies what the threads of its scope have written before. A put's signal, a signal
// or a barrier makes all earlier writes and puts of the scope visible to all threads of the scope
// that waits for it.
// Scope: all threads of the scope make the call with the same arguments and get the same result.
template <class Backend = CtranBackend>
class TorchCommDeviceWindow {
 public:
  using Comm = typename Backend::Comm;
  using State = typename Backend::Window;

  TC_DEVICE int rank() const { return state_.team.rank; }
  TC_DEVICE int num_ranks() const { return state_.team.size; }
  // The window memory of this rank.
  TC_DEVICE void* base() const { return state_.parts[rank()].base; }
  TC_DEVICE uint64_t size() const { return state_.parts[rank()].size_bytes; }
  TC_DEVICE const Comm& comm() const { return state_.team; }
  TC_DEVICE const State& window() const { return state_; }

  // Copies `bytes` from `src_offset` of the source to `dst_offset` of the window memory of
  // `dst_rank`, which may be this rank. When it returns, the copy is done for this device; other
  // devices see it with a later signal. Then it adds 1 to `signal_id` of that rank and to
  // `counter_id` of this rank, unless they are -1.
  TC_DEVICE int put(uint64_t dst_offset, const RegisteredBuffer& source, uint64_t src_offset,
                    int dst_rank, uint64_t bytes, int signal_id = -1, int counter_id = -1,
                    CoopScope scope = CoopScope::THREAD) const {
    if (!is_within(src_offset, bytes, source.size)) return kOutOfBounds;
    return put(dst_offset, static_cast<const char*>(source.base_ptr) + src_offset, dst_rank, bytes,
               signal_id, counter_id, scope);
  }
  // Puts from any memory of this device, without a registered source.
  TC_DEVICE int put(uint64_t dst_offset, const void* from, int dst_rank, uint64_t bytes,
                    int signal_id = -1, int counter_id = -1,
                    CoopScope scope = CoopScope::THREAD) const {
    const auto refused = check_put(dst_offset, dst_rank, bytes, signal_id, counter_id);
    if (refused != kDone) return refused;
    const Group group(scope);
    group.sync();  // the data may come from other threads
    copy_bytes(state_.parts[dst_rank].base + dst_offset, from, bytes, group);
    if (signal_id < 0 && counter_id < 0) return kDone;
    group.sync();
    if (!group.is_leader()) return kDone;
    fence_system();
    if (signal_id >= 0) give(dst_rank, signal_id, SignalOp::ADD, 1);
    if (counter_id >= 0) add_fenced(&own().counters[counter_id], 1);
    return kDone;
  }

  // Returns: the result that a put with these arguments would have; it copies nothing.
  TC_DEVICE Result check_put(uint64_t dst_offset, int dst_rank, uint64_t bytes, int signal_id = -1,
                             int counter_id = -1) const {
    if (!is_rank(dst_rank) || !is_optional(signal_id, state_.signals) ||
        !is_optional(counter_id, state_.counters))
      return kInvalid;
    const bool fits = is_within(dst_offset, bytes, state_.parts[dst_rank].size_bytes);
    return fits ? kDone : kOutOfBounds;
  }

  // Sets the signal of `peer`, or adds to it. It changes the common value, and the value that
  // wait_signal_from() reads for this rank.
  TC_DEVICE int signal(int peer, int signal_id, SignalOp op = SignalOp::ADD, uint64_t value = 1,
                       CoopScope scope = CoopScope::THREAD) const {
    if (!is_rank(peer) || !is_one(signal_id, state_.signals)) return kInvalid;
    const Group group(scope);
    group.sync();
    if (!group.is_leader()) return kDone;
    fence_system();
    give(peer, signal_id, op, value);
    return kDone;
  }

  // Waits until the common value of this rank's signal compares with `value`; the signal is on the
  // left and keeps its value.
  TC_DEVICE int wait_signal(int signal_id, CmpOp cmp, uint64_t value,
                            CoopScope scope = CoopScope::THREAD) const {
    if (!is_one(signal_id, state_.signals)) return kInvalid;
    return wait(&own().signals[signal_id].all, -1, cmp, value, scope);
  }
  // Waits as wait_signal() does, for the value that `peer` alone has produced.
  TC_DEVICE int wait_signal_from(int peer, int signal_id, CmpOp cmp, uint64_t value,
                                 CoopScope scope = CoopScope::THREAD) const {
    if (!is_rank(peer) || !is_one(signal_id, state_.signals)) return kInvalid;
    return wait(&own().signals[signal_id].from[peer], peer, cmp, value, scope);
  }
  // Returns: the common value; 0 for a signal that does not exist.
  TC_DEVICE uint64_t read_signal(int signal_id) const {
    return is_one(signal_id, state_.signals) ? load_acquire(&own().signals[signal_id].all) : 0;
  }
  // Sets the common value and the values of all ranks to 0. Signals that arrive at the same time
  // may be lost or stay.
  TC_DEVICE int reset_signal(int signal_id) const {
    if (!is_one(signal_id, state_.signals)) return kInvalid;
    SignalWords& signal = own().signals[signal_id];
    fence_system();
    store_fenced(&signal.all, 0);
    for (int peer = 0; peer < num_ranks(); ++peer) store_fenced(&signal.from[peer], 0);
    return kDone;
  }

  // Waits until the counter of this rank's puts compares with `value`.
  TC_DEVICE int wait_counter(int counter_id, CmpOp cmp, uint64_t value,
                             CoopScope scope = CoopScope::THREAD) const {
    if (!is_one(counter_id, state_.counters)) return kInvalid;
    return wait(&own().counters[counter_id], rank(), cmp, value, scope);
  }
  TC_DEVICE uint64_t read_counter(int counter_id) const {
    return is_one(counter_id, state_.counters) ? load_acquire(&own().counters[counter_id]) : 0;
  }
  TC_DEVICE int reset_counter(int counter_id) const {
    if (!is_one(counter_id, state_.counters)) return kInvalid;
    fence_system();
    store_fenced(&own().counters[counter_id], 0);
    return kDone;
  }

  // Orders puts: a peer sees earlier puts of this thread before later ones.
  TC_DEVICE int fence() const {
    fence_system();
    return kDone;
  }
  // Makes earlier puts of the scope visible to every thread that sees a later write of the scope.
  TC_DEVICE int flush(CoopScope scope = CoopScope::THREAD) const {
    const Group group(scope);
    fence_system();
    group.sync();
    return kDone;
  }
  // Waits until all ranks have entered the barrier equally often. Each rank may use it in one scope
  // at a time.
  TC_DEVICE int barrier(int barrier_id, CoopScope scope = CoopScope::THREAD) const {
    if (!is_one(barrier_id, state_.barriers)) return kInvalid;
    const Group group(scope);
    group.sync();
    BarrierWords& here = own().barriers[barrier_id];
    const uint64_t round = load_relaxed(&here.round) + 1;
    fence_system();
    for (int peer = static_cast<int>(group.index()); peer < num_ranks();
         peer += static_cast<int>(group.count()))
      store_fenced(&state_.parts[peer].area->barriers[barrier_id].came[rank()], round);
    int missing = static_cast<int>(group.index());
    const auto all_have_come = [&] {
      for (; missing < num_ranks(); missing += static_cast<int>(group.count()))
        if (!has_come(load_acquire(&here.came[missing]), round)) return false;
      return true;
    };
    const auto result = wait_until(state_.team, group, -1, all_have_come);
    if (result == kDone && group.is_leader()) store_fenced(&here.round, round);
    group.sync();
    return result;
  }

  // Returns: the window memory of `peer` for loads and stores; null for a rank that does not exist.
  TC_DEVICE void* get_nvlink_address(int peer) const {
    return is_rank(peer) ? state_.parts[peer].base : nullptr;
  }
  // Returns: null, because windows have no multicast.
  TC_DEVICE void* get_multimem_address(uint64_t offset = 0) const {
    (void)offset;
    return nullptr;
  }

  // Returns: the source with the handle `handle` of register_local_buffer(); null for any other
  // address.
  TC_DEVICE const RegisteredBuffer* buffer(const void* handle) const {
    const auto at = reinterpret_cast<uint64_t>(handle);
    const auto first = reinterpret_cast<uint64_t>(&own().buffers[0]);
    return at >= first && at < first + sizeof(own().buffers)
               ? static_cast<const RegisteredBuffer*>(handle)
               : nullptr;
  }

 private:
  TC_DEVICE static bool is_one(int id, int count) { return id >= 0 && id < count; }
  TC_DEVICE static bool is_optional(int id, int count) { return id == -1 || is_one(id, count); }
  TC_DEVICE bool is_rank(int rank) const { return is_one(rank, num_ranks()); }
  TC_DEVICE WindowArea& own() const { return *state_.parts[rank()].area; }

  // Changes the signal; a fence must come before.
  TC_DEVICE void give(int peer, int signal_id, SignalOp op, uint64_t value) const {
    SignalWords& signal = state_.parts[peer].area->signals[signal_id];
    if (op == SignalOp::SET) {
      store_fenced(&signal.from[rank()], value);
      store_fenced(&signal.all, value);
    } else {
      add_fenced(&signal.from[rank()], value);
      add_fenced(&signal.all, value);
    }
  }
  TC_DEVICE int wait(const uint64_t* word, int waited_for, CmpOp cmp, uint64_t value,
                     CoopScope scope) const {
    const Group group(scope);
    return wait_until(state_.team, group, waited_for, [&] {
      return !group.is_leader() || compares(cmp, load_acquire(word), value);
    });
  }

  State state_;
};

}  // namespace torchcomms::device
