#include "nccl.hpp"

#include <dlfcn.h>

namespace native {
namespace {

constexpr int kUint8 = 1, kBfloat16 = 9, kSum = 0, kSymmetric = 1;

}  // namespace

struct Nccl::Table {
  int (*get_version)(int*);
  const char* (*get_error)(int);
  int (*init_all)(void**, int, const int*);
  int (*group_start)();
  int (*group_end)();
  int (*mem_alloc)(void**, size_t);
  int (*window)(void*, void*, size_t, void**, int);
  int (*all_reduce)(const void*, void*, size_t, int, int, void*, cudaStream_t);
  int (*all_gather)(const void*, void*, size_t, int, void*, cudaStream_t);
  int (*reduce_scatter)(const void*, void*, size_t, int, int, void*, cudaStream_t);
  int (*all_to_all)(const void*, void*, size_t, int, void*, cudaStream_t);
  int (*broadcast)(const void*, void*, size_t, int, int, void*, cudaStream_t);
  int (*send)(const void*, size_t, int, int, void*, cudaStream_t);
  int (*receive)(void*, size_t, int, int, void*, cudaStream_t);
  int (*reduce)(const void*, void*, size_t, int, int, int, void*, cudaStream_t);

  void must(int result, const char* what) const {
    if (result != 0) throw std::runtime_error(std::string(what) + ": " + get_error(result));
  }
};

std::unique_ptr<Nccl> Nccl::open(const World& world, const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return nullptr;
  std::unique_ptr<Nccl> nccl(new Nccl(world));
  nccl->table_ = std::make_unique<Table>();
  Table& t = *nccl->table_;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
  };
  bind(t.get_version, "ncclGetVersion");
  bind(t.get_error, "ncclGetErrorString");
  bind(t.init_all, "ncclCommInitAll");
  bind(t.group_start, "ncclGroupStart");
  bind(t.group_end, "ncclGroupEnd");
  bind(t.mem_alloc, "ncclMemAlloc");
  bind(t.window, "ncclCommWindowRegister");
  bind(t.all_reduce, "ncclAllReduce");
  bind(t.all_gather, "ncclAllGather");
  bind(t.reduce_scatter, "ncclReduceScatter");
  bind(t.all_to_all, "ncclAlltoAll");
  bind(t.broadcast, "ncclBroadcast");
  bind(t.reduce, "ncclReduce");
  bind(t.send, "ncclSend");
  bind(t.receive, "ncclRecv");
  t.must(t.get_version(&nccl->version_), "ncclGetVersion");
  std::vector<int> devices;
  for (int r = 0; r < world.size(); ++r) devices.push_back(world[r].device);
  nccl->comms_.resize(devices.size());
  t.must(t.init_all(nccl->comms_.data(), world.size(), devices.data()), "ncclCommInitAll");
  return nccl;
}

Nccl::Nccl(const World& world) : world_(world) {}

Nccl::~Nccl() = default;  // the communicators live as long as the process

std::vector<char*> Nccl::symmetric_memory(size_t bytes) {
  std::vector<char*> memory;
  if (table_->mem_alloc == nullptr || table_->window == nullptr) return memory;
  for (int r = 0; r < world_.size(); ++r) {
    world_.select(r);
    void* at = nullptr;
    table_->must(table_->mem_alloc(&at, bytes), "ncclMemAlloc");
    memory.push_back(static_cast<char*>(at));
  }
  std::vector<void*> windows(memory.size());
  table_->must(table_->group_start(), "ncclGroupStart");
  for (size_t r = 0; r < memory.size(); ++r) {
    world_.select(static_cast<int>(r));
    table_->must(table_->window(comms_[r], memory[r], bytes, &windows[r], kSymmetric),
                 "ncclCommWindowRegister");
  }
  table_->must(table_->group_end(), "ncclGroupEnd");
  return memory;
}

void Nccl::exchange(int rank, std::span<const kernels::KernelMessage> messages) {
  const Table& t = *table_;
  void* comm = comms_[static_cast<size_t>(rank)];
  const cudaStream_t stream = world_[rank].stream;
  t.must(t.group_start(), "ncclGroupStart");
  for (const auto& m : messages) {
    if (m.is_receive != 0)
      t.must(t.receive(m.data, m.bytes, kUint8, m.peer, comm, stream), "ncclRecv");
    else
      t.must(t.send(m.data, m.bytes, kUint8, m.peer, comm, stream), "ncclSend");
  }
  t.must(t.group_end(), "ncclGroupEnd");
}

bool Nccl::enqueue(int rank, const kernels::KernelCall& call) {
  const Table& t = *table_;
  void* comm = comms_[static_cast<size_t>(rank)];
  const cudaStream_t stream = world_[rank].stream;
  switch (call.collective) {
    case kernels::Collective::kAllReduce:
      t.must(t.all_reduce(call.input, call.output, call.count, kBfloat16, kSum, comm, stream),
             "ncclAllReduce");
      return true;
    case kernels::Collective::kAllGather:
      t.must(t.all_gather(call.input, call.output, call.count, kBfloat16, comm, stream),
             "ncclAllGather");
      return true;
    case kernels::Collective::kReduceScatter:
      t.must(t.reduce_scatter(call.input, call.output, call.count, kBfloat16, kSum, comm, stream),
             "ncclReduceScatter");
      return true;
    case kernels::Collective::kAllToAll:
      if (t.all_to_all == nullptr) return false;
      t.must(t.all_to_all(call.input, call.output, call.count, kBfloat16, comm, stream),
             "ncclAlltoAll");
      return true;
    case kernels::Collective::kBroadcast:
      t.must(t.broadcast(call.input, call.output, call.count, kBfloat16, call.root, comm, stream),
             "ncclBroadcast");
      return true;
    case kernels::Collective::kReduce:
      t.must(
          t.reduce(call.input, call.output, call.count, kBfloat16, kSum, call.root, comm, stream),
          "ncclReduce");
      return true;
    default:
      return false;
  }
}

}  // namespace native
