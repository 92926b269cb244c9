// The stand-in: NCCL's C interface for host memory, for tests. Streams are those of
// gpu/cpu_runtime.hpp.
//
// Built several times: TC_STANDIN_PREFIX gives the functions their names; TC_STANDIN_ONECCL makes
// it oneCCL's variant, TC_STANDIN_OLD one that lacks what came late, TC_STANDIN_BROKEN one that
// lacks what everybody needs, TC_STANDIN_DEVICE one that does not say where it works.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "gpu/cpu_runtime.hpp"
#include "standin/communicator.hpp"

namespace torch::comms::standin {
namespace {

#ifdef TC_STANDIN_ONECCL
constexpr size_t kIdBytes = 4096;
constexpr abi::Result kInProgress = 6;
#else
constexpr size_t kIdBytes = 128;
constexpr abi::Result kInProgress = abi::kInProgress;
#endif
#ifdef TC_STANDIN_OLD
constexpr int kVersion = 21003;
#else
constexpr int kVersion = 23007;
#endif

using CommPtr = std::shared_ptr<Communicator>;

std::mutex mutex;  // guards communicators
std::map<abi::Comm, CommPtr>& communicators() {
  // Never destroyed: a communicator may be let go of when the process ends.
  static auto& all = *new std::map<abi::Comm, CommPtr>;
  return all;
}

abi::Comm hand_out(const CommPtr& comm) {
  std::lock_guard lock(mutex);
  const auto handle = reinterpret_cast<abi::Comm>(comm.get());
  communicators()[handle] = comm;
  return handle;
}
CommPtr find(abi::Comm handle) {
  std::lock_guard lock(mutex);
  const auto found = communicators().find(handle);
  return found == communicators().end() ? nullptr : found->second;
}
CommPtr take_back(abi::Comm handle) {
  std::lock_guard lock(mutex);
  auto node = communicators().extract(handle);
  return node.empty() ? nullptr : node.mapped();
}

abi::Result to_public_result(abi::Result result) {
  return result == abi::kInProgress ? kInProgress : result;
}

// A call inside of a group waits for the group's end.
struct Job {
  CommPtr comm;
  abi::Stream stream;
  PlannedFault fault;
  std::function<abi::Result(Communicator&)> collective;  // or:
  std::optional<Transfer> message;
};
thread_local int group_depth = 0;
thread_local std::vector<Job> group;

// All jobs of one communicator and stream: its collectives in their order, then its messages at
// once.
void launch(const std::vector<Job>& jobs) {
  const auto& first = jobs.front();
  PlannedFault fault;
  for (const auto& job : jobs) {
    fault.hangs = fault.hangs || job.fault.hangs;
    fault.is_lost = fault.is_lost || job.fault.is_lost;
    fault.slower_us += job.fault.slower_us;
  }
  first.comm->launch(first.stream, fault, [jobs, comm = first.comm.get()]() -> abi::Result {
    std::vector<Transfer> messages;
    for (const auto& job : jobs) {
      if (job.message) messages.push_back(*job.message);
      if (!job.collective) continue;
      if (const auto result = job.collective(*comm); result != abi::kSuccess) return result;
    }
    return comm->exchange(std::move(messages));
  });
}

abi::Result end_group() {
  if (group_depth == 0) return kInvalidUsage;
  if (--group_depth > 0) return abi::kSuccess;
  std::vector<std::vector<Job>> launches;
  for (auto& job : std::exchange(group, {})) {
    std::vector<Job>* together = nullptr;
    for (auto& jobs : launches)
      if (jobs[0].comm == job.comm && jobs[0].stream == job.stream) together = &jobs;
    if (together == nullptr) together = &launches.emplace_back();
    together->push_back(std::move(job));
  }
  abi::Result result = abi::kSuccess;
  for (const auto& jobs : launches) {
    launch(jobs);
    if (const auto accepted = jobs[0].comm->accepted(); accepted != abi::kSuccess)
      result = accepted;
  }
  return result;
}

abi::Result enqueue(const char* call, abi::Comm handle, abi::Stream stream, Job job) {
  job.comm = find(handle);
  job.stream = stream;
  if (!job.comm) return kInvalidArgument;
  job.fault = next_fault(call);
  if (job.fault.fails) return kSystemError;
  if (job.fault.sticks) {
    job.comm->await_abort();
    return kSystemError;
  }
  ++group_depth;
  group.push_back(std::move(job));
  return end_group();
}

// What messages belong to: a receiver takes no others.
enum class Kind : uint64_t {
  kMessage = 1,
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSplit,
  kWindow
};
constexpr uint64_t kind_of(Kind kind, int root = 0) {
  return static_cast<uint64_t>(kind) << 32 | static_cast<uint64_t>(root);
}

template <class Body>
abi::Result collective(const char* call, abi::Comm comm, abi::Stream stream, Body body) {
  return enqueue(call, comm, stream, {{}, nullptr, {}, std::move(body), std::nullopt});
}

abi::Result message(const char* call, bool sends, void* data, size_t count, DataType dtype,
                    int peer, abi::Comm comm, abi::Stream stream) {
  const Transfer transfer{peer, sends, data, count * size_of(dtype), kind_of(Kind::kMessage)};
  return enqueue(call, comm, stream, {{}, nullptr, {}, nullptr, transfer});
}

std::shared_ptr<const Communicator::Factor> factor_of(abi::Comm comm, RedOp op) {
  const auto found = find(comm);
  return found ? found->factor_of(op) : nullptr;
}

CommPtr make(const std::string& name, int rank, int size, const abi::Config* config) {
  const bool blocks = config == nullptr || config->blocking != 0;
  auto communicator = std::make_shared<Communicator>(name, rank, size, blocks);
  if (config != nullptr && config->comm_name != nullptr) communicator->title = config->comm_name;
  return communicator;
}

}  // namespace
}  // namespace torch::comms::standin

using namespace torch::comms;           // NOLINT: the functions below belong to no namespace
using namespace torch::comms::standin;  // NOLINT

#define TC_JOIN2(a, b) a##b
#define TC_JOIN(a, b) TC_JOIN2(a, b)
#define API(name) TC_JOIN(TC_STANDIN_PREFIX, name)
#define EXPORT __attribute__((visibility("default")))

extern "C" {

#ifndef TC_STANDIN_DEVICE
EXPORT extern const int torchcomms_works_on_host_memory;
const int torchcomms_works_on_host_memory = 1;
#endif

// How many registrations live in this process, how many allocations, and the name that
// a communicator was given: for tests.
EXPORT int torchcomms_standin_registrations() {
  std::lock_guard lock(mutex);
  size_t count = 0;
  for (const auto& [handle, comm] : communicators()) count += comm->registrations();
  return static_cast<int>(count);
}
EXPORT int torchcomms_standin_allocations() { return static_cast<int>(count_allocations()); }
// Of one communicator; -1 for none.
EXPORT int torchcomms_standin_windows(abi::Comm comm) {
  const auto found = find(comm);
  return found ? static_cast<int>(found->windows()) : -1;
}
EXPORT const char* torchcomms_standin_title(abi::Comm comm) {
  const auto found = find(comm);
  return found ? found->title.c_str() : nullptr;
}

EXPORT int torchcomms_standin_plan(const char* text) { return set_plan(text) ? 0 : 1; }

EXPORT abi::Result API(GetVersion)(int* version) {
  *version = kVersion;
  return abi::kSuccess;
}

EXPORT const char* API(GetErrorString)(abi::Result result) {
  if (result == abi::kSuccess) return "no error";
  if (result == kInProgress) return "in progress";
  if (result == kSystemError) return "system error (planned)";
  if (result == kInvalidArgument) return "invalid argument";
  if (result == kInvalidUsage) return "invalid usage: the ranks' operations differ";
  return "remote error: a peer is gone (planned)";
}

EXPORT abi::Result API(GetUniqueId)(abi::UniqueId<kIdBytes>* id) {
  if (next_fault("GetUniqueId").fails) return kSystemError;
  std::random_device random;
  std::snprintf(id->internal, kIdBytes, "/torchcomms_standin_%d_%08x%08x", ::getpid(), random(),
                random());
  return abi::kSuccess;
}

EXPORT abi::Result API(CommInitRank)(abi::Comm* comm, typename abi::RankCount<kIdBytes>::Type size,
                                     abi::UniqueId<kIdBytes> id, int rank) {
  const auto communicator = make(id.internal, rank, static_cast<int>(size), nullptr);
  const auto result = communicator->connect();
  if (result == abi::kSuccess) *comm = hand_out(communicator);
  return to_public_result(result);
}

#if !defined(TC_STANDIN_OLD) && !defined(TC_STANDIN_ONECCL)
EXPORT abi::Result API(CommInitRankConfig)(abi::Comm* comm, int size, abi::UniqueId<kIdBytes> id,
                                           int rank, abi::Config* config) {
  if (config != nullptr && config->magic != abi::Config{}.magic) return kInvalidArgument;
  const auto communicator = make(id.internal, rank, size, config);
  *comm = hand_out(communicator);
  const auto result = communicator->connect();
  if (result != abi::kSuccess && result != abi::kInProgress) take_back(*comm);
  return to_public_result(result);
}
#endif

#if !defined(TC_STANDIN_OLD) && !defined(TC_STANDIN_ONECCL)
EXPORT abi::Result API(CommShrink)(abi::Comm comm, int* gone, int count, abi::Comm* into,
                                   abi::Config* config, int flags) {
  const auto parent = find(comm);
  if (!parent || count < 1 || count >= parent->size()) return kInvalidArgument;
  const std::set<int> leaving(gone, gone + count);
  if (leaving.size() != static_cast<size_t>(count) || *leaving.begin() < 0 ||
      *leaving.rbegin() >= parent->size() || leaving.contains(parent->rank()))
    return kInvalidArgument;
  if (next_fault("CommShrink").fails) return kSystemError;
  if ((flags & abi::kShrinkAbort) != 0) parent->abort();
  parent->drain();
  auto name = parent->name() + "_without";
  for (const int rank : leaving) name += "_" + std::to_string(rank);
  const auto before = std::distance(leaving.begin(), leaving.lower_bound(parent->rank()));
  const auto communicator =
      make(name, parent->rank() - static_cast<int>(before), parent->size() - count, config);
  *into = hand_out(communicator);
  return to_public_result(communicator->connect());
}
#endif

EXPORT abi::Result API(CommDestroy)(abi::Comm comm) {
  const auto gone = take_back(comm);
  if (!gone) return kInvalidArgument;
  gone->drain();
  return abi::kSuccess;
}

#ifndef TC_STANDIN_ONECCL
EXPORT abi::Result API(CommCount)(abi::Comm comm, int* size) {
  const auto found = find(comm);
  if (!found) return kInvalidArgument;
  *size = found->size();
  return abi::kSuccess;
}

EXPORT abi::Result API(CommAbort)(abi::Comm comm) {
  const auto gone = take_back(comm);
  if (!gone) return kInvalidArgument;
  gone->abort();
  if (next_fault("CommAbort").hangs) await_next_plan();
  return abi::kSuccess;
}

EXPORT abi::Result API(CommGetAsyncError)(abi::Comm comm, abi::Result* error) {
  const auto found = find(comm);
  if (!found) return kInvalidArgument;
  *error = to_public_result(found->state());
  return abi::kSuccess;
}
#endif

#ifndef TC_STANDIN_OLD
EXPORT const char* API(GetLastError)(abi::Comm) { return "the stand-in keeps no text"; }

EXPORT abi::Result API(CommFinalize)(abi::Comm comm) {
  const auto found = find(comm);
  if (!found) return kInvalidArgument;
  const auto fault = next_fault("CommFinalize");
  if (fault.fails) return kSystemError;
  return to_public_result(found->begin([found = found.get(), fault] {
    if (fault.hangs) found->await_abort();
    return abi::kSuccess;
  }));
}

EXPORT abi::Result API(CommSplit)(abi::Comm comm, int color, int key, abi::Comm* into,
                                  abi::Config* config) {
  const auto parent = find(comm);
  if (!parent) return kInvalidArgument;
  const auto fault = next_fault("CommSplit");
  if (fault.fails) return kSystemError;
  *into = nullptr;
  parent->drain();
  const bool child_blocks = config == nullptr || config->blocking != 0;
  return to_public_result(parent->begin(
      [parent = parent.get(), color, key, into, child_blocks, fault,
       title = std::string(config == nullptr || config->comm_name == nullptr ? ""
                                                                             : config->comm_name)] {
        std::vector<std::vector<char>> all;
        const int own[2] = {color, fault.hangs ? -2 : key};
        const auto result =
            parent->gather_all(own, 2, DataType::kInt32, nullptr, kind_of(Kind::kSplit), all);
        if (result != abi::kSuccess) return result;
        if (parent->is_abandoned()) return kSystemError;
        const int number = ++parent->splits;
        if (color == abi::kNoColor) return abi::kSuccess;
        // Members in the order of their keys, then of their ranks.
        std::map<std::pair<int, int>, int> members;
        for (int rank = 0; rank < parent->size(); ++rank) {
          int theirs[2];
          std::memcpy(theirs, all[static_cast<size_t>(rank)].data(), sizeof theirs);
          if (theirs[0] == color) members[{theirs[1], rank}] = rank;
        }
        int place = 0;
        for (const auto& [order, rank] : members) {
          if (rank == parent->rank()) break;
          ++place;
        }
        const auto name =
            parent->name() + "_" + std::to_string(number) + "_" + std::to_string(color);
        auto child = std::make_shared<Communicator>(name, place, static_cast<int>(members.size()),
                                                    child_blocks);
        child->title = title;
        *into = hand_out(child);
        const auto connected = child->connect();
        return connected == abi::kInProgress ? abi::kSuccess : connected;
      }));
}

EXPORT abi::Result API(CommRegister)(abi::Comm comm, void* data, size_t size_bytes,
                                     void** registration) {
  const auto found = find(comm);
  if (!found || data == nullptr || size_bytes == 0) return kInvalidArgument;
  const auto fault = next_fault("CommRegister");
  if (fault.hangs) await_next_plan();
  if (fault.fails) return kSystemError;
  *registration = found->add_registration(data, size_bytes);
  return abi::kSuccess;
}

EXPORT abi::Result API(CommDeregister)(abi::Comm comm, void* registration) {
  const auto found = find(comm);
  const auto fault = next_fault("CommDeregister");
  if (fault.hangs) await_next_plan();
  if (fault.fails) return kSystemError;
  return found && found->remove_registration(registration) ? abi::kSuccess : kInvalidArgument;
}

EXPORT abi::Result API(MemAlloc)(void** data, size_t size_bytes) {
  if (next_fault("MemAlloc").fails) return kSystemError;
  *data = allocate(size_bytes);
  return *data == nullptr ? kSystemError : abi::kSuccess;
}

EXPORT abi::Result API(MemFree)(void* data) {
  return release(data) ? abi::kSuccess : kInvalidArgument;
}

EXPORT abi::Result API(RedOpCreatePreMulSum)(abi::RedOp* op, void* factor, DataType dtype,
                                             abi::ScalarResidence where, abi::Comm comm) {
  const auto found = find(comm);
  if (!found) return kInvalidArgument;
  *op = found->add_factor(factor, dtype, where == abi::ScalarResidence::kDevice);
  return abi::kSuccess;
}

EXPORT abi::Result API(RedOpDestroy)(abi::RedOp op, abi::Comm comm) {
  const auto found = find(comm);
  if (!found) return kInvalidArgument;
  found->remove_factor(op);
  return abi::kSuccess;
}
#endif

EXPORT abi::Result API(GroupStart)() {
  ++group_depth;
  return abi::kSuccess;
}

EXPORT abi::Result API(GroupEnd)() {
  if (next_fault("GroupEnd").fails) {
    group_depth = 0;
    group.clear();
    return kSystemError;
  }
  return to_public_result(end_group());
}

#ifndef TC_STANDIN_BROKEN
EXPORT abi::Result API(AllReduce)(const void* input, void* output, size_t count, DataType dtype,
                                  RedOp op, abi::Comm comm, abi::Stream stream) {
  const auto factor = factor_of(comm, op);
  return to_public_result(collective("AllReduce", comm, stream, [=](Communicator& c) {
    std::vector<std::vector<char>> all;
    const auto result = c.gather_all(input, count, dtype, factor, kind_of(Kind::kAllReduce), all);
    if (result == abi::kSuccess) c.reduce_into(output, all, count, dtype, op);
    return result;
  }));
}
#endif

EXPORT abi::Result API(Reduce)(const void* input, void* output, size_t count, DataType dtype,
                               RedOp op, int root, abi::Comm comm, abi::Stream stream) {
  const auto factor = factor_of(comm, op);
  return to_public_result(collective("Reduce", comm, stream, [=](Communicator& c) {
    std::vector<std::vector<char>> all;
    const auto result =
        c.gather_all(input, count, dtype, factor, kind_of(Kind::kReduce, root), all);
    if (result == abi::kSuccess && c.rank() == root) c.reduce_into(output, all, count, dtype, op);
    return result;
  }));
}

EXPORT abi::Result API(Broadcast)(const void* input, void* output, size_t count, DataType dtype,
                                  int root, abi::Comm comm, abi::Stream stream) {
  return to_public_result(collective("Broadcast", comm, stream, [=](Communicator& c) {
    const size_t size_bytes = count * size_of(dtype);
    std::vector<Transfer> transfers;
    const auto kind = kind_of(Kind::kBroadcast, root);
    if (c.rank() != root) transfers.push_back({root, false, output, size_bytes, kind});
    for (int peer = 0; c.rank() == root && peer < c.size(); ++peer)
      if (peer != root)
        transfers.push_back({peer, true, const_cast<void*>(input), size_bytes, kind});
    if (c.rank() == root && size_bytes > 0) std::memmove(output, input, size_bytes);
    return c.exchange(std::move(transfers));
  }));
}

EXPORT abi::Result API(AllGather)(const void* input, void* output, size_t count, DataType dtype,
                                  abi::Comm comm, abi::Stream stream) {
  return to_public_result(collective("AllGather", comm, stream, [=](Communicator& c) {
    std::vector<std::vector<char>> all;
    const auto result = c.gather_all(input, count, dtype, nullptr, kind_of(Kind::kAllGather), all);
    const size_t each = count * size_of(dtype);
    for (size_t rank = 0; result == abi::kSuccess && each > 0 && rank < all.size(); ++rank)
      std::memcpy(static_cast<char*>(output) + rank * each, all[rank].data(), each);
    return result;
  }));
}

EXPORT abi::Result API(ReduceScatter)(const void* input, void* output, size_t count, DataType dtype,
                                      RedOp op, abi::Comm comm, abi::Stream stream) {
  const auto factor = factor_of(comm, op);
  return to_public_result(collective("ReduceScatter", comm, stream, [=](Communicator& c) {
    const size_t total = count * static_cast<size_t>(c.size());
    std::vector<std::vector<char>> all;
    const auto result =
        c.gather_all(input, total, dtype, factor, kind_of(Kind::kReduceScatter), all);
    if (result != abi::kSuccess || count == 0) return result;
    const auto each = static_cast<std::ptrdiff_t>(count * size_of(dtype));
    for (auto& bytes : all)
      bytes = {bytes.begin() + each * c.rank(), bytes.begin() + each * (c.rank() + 1)};
    c.reduce_into(output, all, count, dtype, op);
    return result;
  }));
}

#ifndef TC_STANDIN_OLD
#ifdef TC_STANDIN_ONECCL
#define ALL_TO_ALL AllToAll
#else
#define ALL_TO_ALL AlltoAll
#endif
EXPORT abi::Result API(ALL_TO_ALL)(const void* input, void* output, size_t count, DataType dtype,
                                   abi::Comm comm, abi::Stream stream) {
  return to_public_result(collective("AllToAll", comm, stream, [=](Communicator& c) {
    const size_t total = count * static_cast<size_t>(c.size());
    std::vector<std::vector<char>> all;
    const auto result = c.gather_all(input, total, dtype, nullptr, kind_of(Kind::kAllToAll), all);
    const size_t each = count * size_of(dtype);
    for (size_t rank = 0; result == abi::kSuccess && each > 0 && rank < all.size(); ++rank)
      std::memcpy(static_cast<char*>(output) + rank * each,
                  all[rank].data() + each * static_cast<size_t>(c.rank()), each);
    return result;
  }));
}
#endif

EXPORT abi::Result API(Send)(const void* data, size_t count, DataType dtype, int peer,
                             abi::Comm comm, abi::Stream stream) {
  return to_public_result(
      message("Send", true, const_cast<void*>(data), count, dtype, peer, comm, stream));
}

EXPORT abi::Result API(Recv)(void* data, size_t count, DataType dtype, int peer, abi::Comm comm,
                             abi::Stream stream) {
  return to_public_result(message("Recv", false, data, count, dtype, peer, comm, stream));
}

#if !defined(TC_STANDIN_OLD) && !defined(TC_STANDIN_ONECCL)
EXPORT abi::Result API(CommWindowRegister)(abi::Comm comm, void* data, size_t size_bytes,
                                           abi::Window* window, int flags) {
  const auto found = find(comm);
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (!found || address == 0 || address % abi::kWindowAlignment != 0 || flags != abi::kSymmetric)
    return kInvalidArgument;
  if (next_fault("CommWindowRegister").fails) return kSystemError;
  found->drain();
  return to_public_result(found->begin([found = found.get(), data, size_bytes, window] {
    return found->open_window(data, size_bytes, kind_of(Kind::kWindow), window);
  }));
}

EXPORT abi::Result API(CommWindowDeregister)(abi::Comm comm, abi::Window window) {
  const auto found = find(comm);
  return found && found->close_window(window) ? abi::kSuccess : kInvalidArgument;
}

EXPORT abi::Result API(PutSignal)(const void* data, size_t count, DataType dtype, int peer,
                                  abi::Window window, size_t offset_bytes, int index, int context,
                                  unsigned flags, abi::Comm comm, abi::Stream stream) {
  const auto found = find(comm);
  const auto into = found ? found->window_of(window) : nullptr;
  const size_t size_bytes = count * size_of(dtype);
  if (!into || index != 0 || context != 0 || flags != 0 || peer < 0 || peer >= found->size() ||
      !found->is_in_windows(data, size_bytes) || offset_bytes > into->size_bytes ||
      size_bytes > into->size_bytes - offset_bytes)
    return kInvalidArgument;
  return to_public_result(collective("PutSignal", comm, stream, [=](Communicator& c) {
    std::memmove(into->parts[static_cast<size_t>(peer)]->at() + offset_bytes, data, size_bytes);
    c.signal(peer);
    return abi::kSuccess;
  }));
}

EXPORT abi::Result API(Signal)(int peer, int index, int context, unsigned flags, abi::Comm comm,
                               abi::Stream stream) {
  const auto found = find(comm);
  if (!found || index != 0 || context != 0 || flags != 0 || peer < 0 || peer >= found->size())
    return kInvalidArgument;
  return to_public_result(collective("Signal", comm, stream, [=](Communicator& c) {
    c.signal(peer);
    return abi::kSuccess;
  }));
}

EXPORT abi::Result API(WaitSignal)(int count, abi::WaitSignalDesc* awaited, abi::Comm comm,
                                   abi::Stream stream) {
  const auto found = find(comm);
  if (!found || count < 1) return kInvalidArgument;
  const std::vector<abi::WaitSignalDesc> all(awaited, awaited + count);
  for (const auto& each : all)
    if (each.count < 1 || each.index != 0 || each.context != 0 || each.peer < 0 ||
        each.peer >= found->size())
      return kInvalidArgument;
  return to_public_result(collective("WaitSignal", comm, stream, [=](Communicator& c) {
    abi::Result result = abi::kSuccess;
    for (const auto& each : all)
      if (result == abi::kSuccess) result = c.take_signals(each.peer, each.count);
    return result;
  }));
}
#endif

}  // extern "C"
