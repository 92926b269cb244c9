#include "vendor/blocking_adapter/async_facade.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "vendor/blocking_adapter/blocking_communicator.hpp"
#include "vendor/blocking_adapter/message_exchange.hpp"
#include "vendor/blocking_adapter/sum_emulation.hpp"

namespace torch::comms::nccl {
namespace {

using abi::DataType;
using abi::RedOp;
using abi::Result;
using host::BlockingCommunicator;
using host::EmulatedReduction;
using host::PointToPointMessage;

constexpr size_t kIdBytes = 4096;
using Id = abi::UniqueId<kIdBytes>;

// The library of the facade made last; functions without a communicator argument call it.
std::atomic<const VendorLibrary*> library{nullptr};

// A communicator handle of the facade: a pointer to a shared_ptr.
using Handle = std::shared_ptr<BlockingCommunicator>;
abi::Comm hand_out(Handle member) {
  return reinterpret_cast<abi::Comm>(new Handle(std::move(member)));
}
const Handle& member_of(abi::Comm comm) { return *reinterpret_cast<Handle*>(comm); }

// The calls of this thread that wait for the end of its group.
struct CallGroup {
  struct GroupedCall {
    Handle member;
    abi::Stream stream;
    BlockingCommunicator::Body collective;  // exactly one of the two is set
    std::optional<PointToPointMessage> message;
  };
  int depth = 0;
  std::vector<GroupedCall> calls;
};
thread_local CallGroup group;

Result start_group() {
  ++group.depth;
  return abi::kSuccess;
}

Result end_group() {
  if (group.depth == 0) return abi::kInvalidUsage;
  if (--group.depth > 0) return abi::kSuccess;
  const auto jobs = std::exchange(group.calls, {});
  if (jobs.empty()) return abi::kSuccess;
  const auto& first = jobs.front();
  std::vector<BlockingCommunicator::Body> collectives;
  std::vector<PointToPointMessage> messages;
  for (const auto& job : jobs) {
    if (job.member != first.member || job.stream != first.stream) return abi::kInvalidUsage;
    if (job.message)
      messages.push_back(*job.message);
    else
      collectives.push_back(job.collective);
  }
  first.member->launch(first.stream,
                       [collectives = std::move(collectives),
                        messages = std::move(messages)](BlockingCommunicator& member) -> Result {
                         for (const auto& collective : collectives)
                           if (const auto result = collective(member); result != abi::kSuccess)
                             return result;
                         return messages.empty() ? abi::Result{abi::kSuccess}
                                                 : host::exchange_messages(member, messages);
                       });
  return abi::kSuccess;
}

Result collective(abi::Comm comm, abi::Stream stream, BlockingCommunicator::Body body) {
  const auto& member = member_of(comm);
  if (group.depth > 0)
    group.calls.push_back({member, stream, std::move(body), std::nullopt});
  else
    member->launch(stream, std::move(body));
  return abi::kSuccess;
}

Result message(abi::Comm comm, abi::Stream stream, PointToPointMessage message) {
  if (group.depth == 0) return abi::kInvalidUsage;
  group.calls.push_back({member_of(comm), stream, nullptr, message});
  return abi::kSuccess;
}

Result all_reduce(const void* input, void* output, size_t count, DataType dtype, RedOp op,
                  abi::Comm comm, abi::Stream stream) {
  const EmulatedReduction reducing(*member_of(comm), dtype, op);
  return collective(comm, stream, [=](BlockingCommunicator& m) {
    return reducing.run(input, count, output, count, [&](const void* from, RedOp with) {
      return m.library().AllReduce(from, output, count, dtype, with, m.communicator(), nullptr);
    });
  });
}

Result reduce(const void* input, void* output, size_t count, DataType dtype, RedOp op, int root,
              abi::Comm comm, abi::Stream stream) {
  const EmulatedReduction reducing(*member_of(comm), dtype, op);
  return collective(comm, stream, [=](BlockingCommunicator& m) {
    const size_t outputs = m.rank() == root ? count : 0;
    return reducing.run(input, count, output, outputs, [&](const void* from, RedOp with) {
      return m.library().Reduce(from, output, count, dtype, with, root, m.communicator(), nullptr);
    });
  });
}

Result reduce_scatter(const void* input, void* output, size_t count, DataType dtype, RedOp op,
                      abi::Comm comm, abi::Stream stream) {
  const EmulatedReduction reducing(*member_of(comm), dtype, op);
  return collective(comm, stream, [=](BlockingCommunicator& m) {
    const size_t inputs = count * static_cast<size_t>(m.size());
    return reducing.run(input, inputs, output, count, [&](const void* from, RedOp with) {
      return m.library().ReduceScatter(from, output, count, dtype, with, m.communicator(), nullptr);
    });
  });
}

Result broadcast(const void* input, void* output, size_t count, DataType dtype, int root,
                 abi::Comm comm, abi::Stream stream) {
  return collective(comm, stream, [=](BlockingCommunicator& m) {
    return m.library().Broadcast(input, output, count, dtype, root, m.communicator(), nullptr);
  });
}

Result all_gather(const void* input, void* output, size_t count, DataType dtype, abi::Comm comm,
                  abi::Stream stream) {
  return collective(comm, stream, [=](BlockingCommunicator& m) {
    return m.library().AllGather(input, output, count, dtype, m.communicator(), nullptr);
  });
}

Result all_to_all(const void* input, void* output, size_t count, DataType dtype, abi::Comm comm,
                  abi::Stream stream) {
  return collective(comm, stream, [=](BlockingCommunicator& m) {
    return m.library().AllToAll(input, output, count, dtype, m.communicator(), nullptr);
  });
}

Result send(const void* data, size_t count, DataType dtype, int peer, abi::Comm comm,
            abi::Stream stream) {
  const size_t size_bytes = count * host::size_of(dtype);
  return message(comm, stream, {peer, true, const_cast<void*>(data), size_bytes});
}

Result receive(void* data, size_t count, DataType dtype, int peer, abi::Comm comm,
               abi::Stream stream) {
  return message(comm, stream, {peer, false, data, count * host::size_of(dtype)});
}

Result get_version(int* version) { return library.load()->GetVersion(version); }
const char* get_error_string(Result result) {
  return result == abi::kInvalidUsage ? "invalid usage" : library.load()->GetErrorString(result);
}
const char* get_last_error(abi::Comm comm) { return member_of(comm)->last_error(); }
Result get_async_error(abi::Comm comm, Result* state) {
  *state = member_of(comm)->state();
  return abi::kSuccess;
}

Result get_unique_id(Id* id) { return library.load()->get_unique_id(id->internal); }

Result connect(const VendorLibrary& library, abi::Comm* comm, size_t size, const Id& id, int rank) {
  abi::Comm created = nullptr;
  const auto result =
      library.init_rank(&created, static_cast<int>(size), id.internal, rank, /*config=*/nullptr);
  if (result != abi::kSuccess) return result;
  *comm = hand_out(
      std::make_shared<BlockingCommunicator>(library, created, rank, static_cast<int>(size)));
  return result;
}

Result init_rank(abi::Comm* comm, size_t size, Id id, int rank) {
  return connect(*library.load(), comm, size, id, rank);
}

Result count(abi::Comm comm, int* size) {
  *size = member_of(comm)->size();
  return abi::kSuccess;
}

Result destroy(abi::Comm comm) {
  auto* const handle = reinterpret_cast<Handle*>(comm);
  const auto member = *handle;
  member->drain();
  delete handle;
  return member->library().CommDestroy(member->communicator());
}

// Makes child communicators: the ranks of each color, ordered by key and then by rank, connect with
// the id of their first rank. oneCCL's own split ignores keys, and its children do not know their
// size.
Result split(abi::Comm comm, int color, int key, abi::Comm* into, abi::Config*) {
  auto& member = *member_of(comm);
  const auto& with = member.library();
  *into = nullptr;
  member.drain();
  const auto gather = [&](const auto& own, auto& all) {
    return member.set_error(with.AllGather(own.data(), all.data(), own.size() * sizeof own[0],
                                           DataType::kUint8, member.communicator(), nullptr));
  };
  const auto ranks = static_cast<size_t>(member.size());
  const std::vector<int> own{color, key};
  std::vector<int> all(2 * ranks);
  if (const auto result = gather(own, all); result != abi::kSuccess) return result;
  std::vector<std::pair<int, size_t>> order;
  for (size_t rank = 0; rank < ranks; ++rank)
    if (all[2 * rank] == color) order.emplace_back(all[2 * rank + 1], rank);
  std::sort(order.begin(), order.end());
  const auto place = static_cast<size_t>(
      std::find(order.begin(), order.end(), std::pair{key, static_cast<size_t>(member.rank())}) -
      order.begin());

  std::vector<char> id(kIdBytes), ids(ranks * kIdBytes);
  const bool has_group = color != abi::kNoColor;
  // A rank that fails goes on, because the other ranks wait for it in the next collective.
  const auto id_result = has_group && place == 0 ? with.get_unique_id(id) : abi::kSuccess;
  if (const auto result = gather(id, ids); result != abi::kSuccess) return result;
  if (id_result != abi::kSuccess) return member.set_error(id_result);
  if (!has_group) return abi::kSuccess;
  Id group_id;
  std::memcpy(group_id.internal, ids.data() + order.front().second * kIdBytes, kIdBytes);
  return member.set_error(connect(with, into, order.size(), group_id, static_cast<int>(place)));
}

// The factor is copied, because `factor` points to host memory.
Result create_premul_sum(RedOp* op, void* factor, DataType dtype, abi::ScalarResidence,
                         abi::Comm comm) {
  const auto* const bytes = static_cast<const char*>(factor);
  *op = member_of(comm)->add_premul_factor({bytes, bytes + host::size_of(dtype)});
  return abi::kSuccess;
}
Result destroy_op(RedOp op, abi::Comm comm) {
  member_of(comm)->remove_premul_factor(op);
  return abi::kSuccess;
}

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

void* find(std::string_view name) {
  if (name == "GetVersion") return address_of<abi::GetVersion>(get_version);
  if (name == "GetErrorString") return address_of<abi::GetErrorString>(get_error_string);
  if (name == "GetLastError") return address_of<abi::GetLastError>(get_last_error);
  if (name == "GetUniqueId") return address_of<abi::GetUniqueId<kIdBytes>>(get_unique_id);
  if (name == "CommInitRank") return address_of<abi::CommInitRank<kIdBytes>>(init_rank);
  if (name == "CommCount") return address_of<abi::CommCount>(count);
  if (name == "CommDestroy") return address_of<abi::CommDestroy>(destroy);
  if (name == "CommGetAsyncError") return address_of<abi::CommGetAsyncError>(get_async_error);
  if (name == "CommSplit") return address_of<abi::CommSplit>(split);
  if (name == "RedOpCreatePreMulSum")
    return address_of<abi::RedOpCreatePreMulSum>(create_premul_sum);
  if (name == "RedOpDestroy") return address_of<abi::RedOpDestroy>(destroy_op);
  if (name == "GroupStart") return address_of<abi::GroupStart>(start_group);
  if (name == "GroupEnd") return address_of<abi::GroupEnd>(end_group);
  if (name == "AllReduce") return address_of<abi::AllReduce>(all_reduce);
  if (name == "Reduce") return address_of<abi::Reduce>(reduce);
  if (name == "ReduceScatter") return address_of<abi::ReduceScatter>(reduce_scatter);
  if (name == "Broadcast") return address_of<abi::Broadcast>(broadcast);
  if (name == "AllGather") return address_of<abi::AllGather>(all_gather);
  if (name == "AllToAll") return address_of<abi::AllToAll>(all_to_all);
  if (name == "Send") return address_of<abi::Send>(send);
  if (name == "Recv") return address_of<abi::Recv>(receive);
  return nullptr;
}

}  // namespace

VendorLibrary make_async_facade(const VendorLibrary& blocking) {
  TC_CHECK(blocking.vendor().unique_id_bytes == kIdBytes);
  if (blocking.AllToAll == nullptr)
    throw CommError(Errc::kBackendUnavailable,
                    "backend '" + std::string(blocking.vendor().backend) + "': " + blocking.path() +
                        ", version " + blocking.version_text() + ", has no function " +
                        std::string(blocking.vendor().prefix) + "AllToAll, which CPU tensors need");
  // The copy is never freed, because its communicators may live as long as the process.
  library = new VendorLibrary(blocking);
  return blocking.with_functions(find);
}

}  // namespace torch::comms::nccl
