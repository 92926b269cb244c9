#include "ctran/library/team_library.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"
#include "ctran/library/messages.hpp"
#include "ctran/team/kernel_library.hpp"
#include "gpu/driver.hpp"

namespace torch::comms::nccl::abi {

// What a handle of this library points to.
struct OpaqueComm {
  std::shared_ptr<ctran::DeviceTeam> team;
  std::shared_ptr<const gpu::Runtime> runtime;
  std::string last_error;
};

}  // namespace torch::comms::nccl::abi

namespace torch::comms::ctran {
namespace {

namespace abi = nccl::abi;
using abi::kSuccess, abi::Result;

using abi::kInvalidUsage;  // nothing was launched; the last error says why
constexpr Result kSystemError = 2;
constexpr int kVersion = 100;  // of this interface: 0.1.0

// The messages of the group that this thread has open.
struct OpenMessageGroup {
  struct GroupPost {
    abi::Comm comm;
    abi::Stream stream;
  };
  int depth = 0;
  GroupPost post{};  // the same for all its messages
  std::vector<kernels::KernelMessage> messages;
};
thread_local OpenMessageGroup group;

Result refuse(abi::Comm comm, std::string why) {
  comm->last_error = std::move(why);
  return kInvalidUsage;
}

Result launch(const OpenMessageGroup::GroupPost& post,
              std::span<const kernels::KernelMessage> messages) {
  auto& comm = *post.comm;
  try {
    auto sorted = sort_messages(comm.team ? comm.team->rank() : 0, messages);
    if (!sorted.invalid_reason.empty()) return refuse(&comm, std::move(sorted.invalid_reason));
    if (!comm.team && !sorted.peer_messages.empty())
      return refuse(&comm, "messages to other ranks need kernels, and this communicator has none");
    for (const auto& copy : sorted.self_messages)
      if (copy.bytes > 0 && copy.from != copy.into)
        comm.runtime->copy_on_device(copy.into, copy.from, copy.bytes, post.stream);
    // Messages have no timeout here: the backend monitors the operation and aborts the team.
    if (comm.team) comm.team->exchange(sorted.peer_messages, 0, post.stream);
    return kSuccess;
  } catch (const CommError& e) {
    comm.last_error = e.why();
    return kSystemError;
  }
}

Result start_group() {
  ++group.depth;
  return kSuccess;
}

Result end_group() {
  if (--group.depth > 0) return kSuccess;
  const auto messages = std::exchange(group.messages, {});
  return messages.empty() ? kSuccess : launch(group.post, messages);
}

Result post(const kernels::KernelMessage& message, abi::Comm comm, abi::Stream stream) {
  const OpenMessageGroup::GroupPost post{comm, stream};
  if (group.depth == 0) return launch(post, {&message, 1});
  if (!group.messages.empty() && (group.post.comm != comm || group.post.stream != stream))
    return refuse(comm,
                  "all messages of a group must have the same communicator and the same stream");
  group.post = post;
  group.messages.push_back(message);
  return kSuccess;
}

// The backends pass only types of one byte, because they move bytes.
Result send(const void* data, size_t count, abi::DataType, int peer, abi::Comm comm,
            abi::Stream stream) {
  return post({const_cast<void*>(data), count, peer, 0}, comm, stream);
}
Result receive(void* data, size_t count, abi::DataType, int peer, abi::Comm comm,
               abi::Stream stream) {
  return post({data, count, peer, 1}, comm, stream);
}

Result destroy(abi::Comm comm) {
  delete comm;
  return kSuccess;
}
Result abort(abi::Comm comm) {
  if (comm->team) comm->team->abort();
  return destroy(comm);
}

Result get_version(int* version) {
  *version = kVersion;
  return kSuccess;
}
const char* get_error_string(Result) { return "the call failed"; }
const char* get_last_error(abi::Comm comm) { return comm->last_error.c_str(); }

std::shared_ptr<const gpu::Runtime> runtime_of_memory() {
  return KernelLibrary::is_for_host() ? gpu::Runtime::shared_cpu() : gpu::Runtime::of(gpu::kCuda);
}

// Memory that the devices of other ranks can map, by its address.
class MappableAllocations {
 public:
  static MappableAllocations& all() {
    static auto* const all = new MappableAllocations;
    return *all;
  }
  void* allocate(size_t size_bytes) {
    const auto runtime = runtime_of_memory();
    auto allocation = gpu::ShareableMemory::create(
        gpu::Driver::of(*runtime), *runtime, runtime->device(), std::max<size_t>(size_bytes, 1));
    void* const at = allocation.at();
    const std::lock_guard lock(mutex_);
    allocations_.emplace(at, std::move(allocation));
    return at;
  }
  bool free(void* at) {
    std::unique_lock lock(mutex_);
    const auto allocation = allocations_.extract(at);
    lock.unlock();  // unmapping needs no lock
    return !allocation.empty();
  }

 private:
  std::mutex mutex_;
  std::map<void*, gpu::ShareableMemory> allocations_;
};

Result allocate(void** at, size_t size_bytes) {
  try {
    *at = MappableAllocations::all().allocate(size_bytes);
    return kSuccess;
  } catch (const CommError& e) {
    base::log(base::LogLevel::kWarning, e.why());
    return kSystemError;
  }
}
Result deallocate(void* at) {
  return MappableAllocations::all().free(at) ? kSuccess : kInvalidUsage;
}

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

void* find(std::string_view name) {
  if (name == "GetVersion") return address_of<abi::GetVersion>(get_version);
  if (name == "GetErrorString") return address_of<abi::GetErrorString>(get_error_string);
  if (name == "GetLastError") return address_of<abi::GetLastError>(get_last_error);
  if (name == "GroupStart") return address_of<abi::GroupStart>(start_group);
  if (name == "GroupEnd") return address_of<abi::GroupEnd>(end_group);
  if (name == "Send") return address_of<abi::Send>(send);
  if (name == "Recv") return address_of<abi::Recv>(receive);
  if (name == "CommDestroy") return address_of<abi::CommDestroy>(destroy);
  if (name == "CommAbort") return address_of<abi::CommAbort>(abort);
  if (name == "MemAlloc") return address_of<abi::MemAlloc>(allocate);
  if (name == "MemFree") return address_of<abi::MemFree>(deallocate);
  static int works_on_host_memory = 1;
  if (name == abi::kHostMemorySymbol && KernelLibrary::is_for_host()) return &works_on_host_memory;
  return nullptr;
}

constexpr const char* kAllUsable[] = {nullptr};

}  // namespace

const nccl::Vendor kTeamLibrary{.backend = "ctran",
                                .library = "CTRAN",
                                .prefix = "",
                                .stem = "",
                                .soname = "",
                                .library_variable = "",
                                .unique_id_bytes = 0,
                                .runtime = &gpu::kCuda,
                                .in_progress = abi::kInProgress,
                                .has_config = true,
                                .unusable_symbols = kAllUsable,
                                .lookup = find};

abi::Comm open_team(std::shared_ptr<DeviceTeam> team, std::shared_ptr<const gpu::Runtime> runtime) {
  return new abi::OpaqueComm{std::move(team), std::move(runtime), {}};
}

}  // namespace torch::comms::ctran
