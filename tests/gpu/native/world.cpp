#include "world.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace native {

using kernels::WorkspaceHeader;
using kernels::WorkspaceLayout;

namespace {
const kernels::WindowCollectiveTable* window_table = nullptr;  // of open_library()
}

const kernels::KernelFunctionTable& open_library(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) throw std::runtime_error(std::string("dlopen: ") + dlerror());
  const auto entry = reinterpret_cast<kernels::KernelLibraryEntry>(dlsym(handle, kernels::kSymbol));
  if (entry == nullptr) throw std::runtime_error("no symbol torchcomms_kernels in " + path);
  int devices = 0;
  must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  const kernels::KernelFunctionTable* library = nullptr;
  for (int device = 0; device < devices; ++device) {
    must(cudaSetDevice(device), "cudaSetDevice");
    library = entry();
  }
  if (library == nullptr || library->abi != kernels::kAbi)
    throw std::runtime_error("another version of the kernels' interface");
  const auto window_entry = reinterpret_cast<kernels::WindowCollectiveEntry>(
      dlsym(handle, kernels::kWindowCollectivesSymbol));
  if (window_entry == nullptr || window_entry()->version != kernels::kWindowCollectivesVersion)
    throw std::runtime_error("no kernels for regions of this version");
  window_table = window_entry();
  return *library;
}

namespace {

// As after so many messages, tiles and chunks of all ranks.
std::vector<kernels::Mailbox> mailboxes_after(int ranks, uint64_t count) {
  kernels::Mailbox mailbox{};
  std::memset(mailbox.headers, 0x5e, sizeof mailbox.headers);
  std::memset(mailbox.replies, 0x5e, sizeof mailbox.replies);
  for (auto& counter : mailbox.chunks) counter.value = count;
  kernels::MessageCounters progress{};
  progress.messages = count;
  std::ranges::fill(progress.chunks, count);
  for (auto& tiles : progress.tiles) std::ranges::fill(tiles, count);
  mailbox.taken_by_peer = mailbox.sent = mailbox.taken = progress;
  return std::vector<kernels::Mailbox>(static_cast<size_t>(ranks - 1), mailbox);
}

}  // namespace

World::World(const kernels::KernelFunctionTable& library, int ranks, uint64_t first_launch)
    : library_(library), ranks_(static_cast<size_t>(ranks)) {
  int devices = 0;
  must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  shares_ = ranks > devices;
  for (int r = 0; r < ranks; ++r) ranks_[static_cast<size_t>(r)].device = r % devices;
  for (auto& rank : ranks_) {
    must(cudaSetDevice(rank.device), "cudaSetDevice");
    for (const auto& peer : ranks_)
      if (peer.device != rank.device) {
        const cudaError_t error = cudaDeviceEnablePeerAccess(peer.device, 0);
        if (error == cudaErrorPeerAccessAlreadyEnabled)
          (void)cudaGetLastError();
        else
          must(error, "cudaDeviceEnablePeerAccess");
      }
  }
  const WorkspaceLayout layout(ranks);
  std::vector<void*> workspaces;
  for (int r = 0; r < ranks; ++r) {
    auto& rank = ranks_[static_cast<size_t>(r)];
    must(cudaSetDevice(rank.device), "cudaSetDevice");
    for (cudaStream_t* const stream : {&rank.stream, &rank.side})
      must(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreate");
    for (cudaEvent_t* const event : {&rank.forked, &rank.joined})
      must(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreate");
    char* workspace = nullptr;
    must(cudaMalloc(&workspace, library.workspace_bytes(ranks)), "cudaMalloc");
    must(cudaMemset(workspace, 0, library.workspace_bytes(ranks)), "cudaMemset");
    if (first_launch != 1) {
      // As after so many launches: their numbers known, and no flag of the next ones anywhere.
      WorkspaceHeader header{};
      header.launches = first_launch - 1;
      for (uint64_t& begun : header.arrival) begun = kernels::arrival_word(first_launch - 1, 0);
      must(cudaMemcpy(workspace, &header, sizeof header, cudaMemcpyHostToDevice), "cudaMemcpy");
      must(cudaMemset(workspace + layout.ll, 0x5e, layout.mailboxes - layout.ll), "cudaMemset");
      const auto mailboxes = mailboxes_after(ranks, first_launch - 1);
      must(cudaMemcpy(workspace + layout.mailboxes, mailboxes.data(),
                      mailboxes.size() * sizeof(kernels::Mailbox), cudaMemcpyHostToDevice),
           "cudaMemcpy");
    }
    workspaces.push_back(workspace);
    must(cudaHostAlloc(&rank.control, sizeof *rank.control, cudaHostAllocMapped), "cudaHostAlloc");
    *rank.control = {};
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  for (int r = 0; r < ranks; ++r) {
    auto& rank = ranks_[static_cast<size_t>(r)];
    must(cudaSetDevice(rank.device), "cudaSetDevice");
    rank.team.rank = r;
    rank.team.size = ranks;
    rank.team.is_partial = lacks_rest ? 1 : 0;
    for (int peer = 0; peer < ranks; ++peer)
      rank.team.workspace[peer] = workspaces[static_cast<size_t>(peer)];
    must(cudaHostGetDevicePointer(&rank.team.control, rank.control, 0), "cudaHostGetDevicePointer");
  }
}

World::~World() {
  for (const auto& rank : ranks_) {
    cudaSetDevice(rank.device);
    cudaStreamSynchronize(rank.stream);
  }
  for (const auto& rank : ranks_) {
    cudaSetDevice(rank.device);
    for (const cudaEvent_t event : {rank.forked, rank.joined}) cudaEventDestroy(event);
    for (const cudaStream_t stream : {rank.side, rank.stream}) cudaStreamDestroy(stream);
    cudaFree(rank.team.workspace[rank.team.rank]);
    cudaFreeHost(rank.control);
  }
}

bool World::may_copy(kernels::Collective collective) const {
  return !shares_ || collective == kernels::Collective::kAllGather ||
         collective == kernels::Collective::kAllToAll;
}

int World::ranks_of_gpu() const {
  int most = 0;
  for (const auto& one : ranks_)
    most = std::max(most, static_cast<int>(std::ranges::count(ranks_, one.device, &Rank::device)));
  return most;
}

void World::launch(int rank, const kernels::KernelCall& call) const {
  check(rank, library_.launch((*this)[rank].team, call, (*this)[rank].stream));
}

void World::launch(int rank, kernels::WindowCollectiveCall call) const {
  const Rank& own = (*this)[rank];
  call.side_stream = {own.side, own.forked, own.joined};
  check(rank, window_table->launch(own.team, call, own.stream));
}

void World::exchange(int rank, std::span<const kernels::KernelMessage> messages, int blocks,
                     uint64_t limit_ns) const {
  if (messages.empty()) return;
  const kernels::MessageExchange exchange{messages.data(), static_cast<int32_t>(messages.size()),
                                          blocks, limit_ns};
  check(rank, library_.exchange((*this)[rank].team, exchange, (*this)[rank].stream));
}

void World::exchange(int rank, const kernels::AllToAllVDynamic& exchange) const {
  check(rank, library_.all_to_all_v_dynamic((*this)[rank].team, exchange, (*this)[rank].stream));
}

void World::reduce_scatter(int rank, const kernels::QuantizedReduceScatter& call) const {
  check(rank, library_.reduce_scatter_quantized((*this)[rank].team, call, (*this)[rank].stream));
}

void World::check(int rank, int error) const {
  if (error != 0)
    throw std::runtime_error("launch on rank " + std::to_string(rank) + ": " +
                             library_.error_text(error));
}

void World::synchronize() const {
  for (int r = 0; r < size(); ++r) {
    select(r);
    must(cudaStreamSynchronize((*this)[r].stream), "cudaStreamSynchronize");
  }
}

void World::check_alive() const {
  std::string stopped;
  for (const auto& rank : ranks_)
    if (rank.control->stop != 0)
      stopped += "rank " + std::to_string(rank.team.rank) + " stopped (" +
                 std::to_string(rank.control->stop) + ") in collective " +
                 std::to_string(rank.control->collective) + ", launch " +
                 std::to_string(rank.control->launch) + ", waiting for rank " +
                 std::to_string(rank.control->waited_for) + "; ";
  if (!stopped.empty()) throw std::runtime_error(stopped);
}

DeviceMemory::DeviceMemory(const World& world, int rank, size_t bytes) {
  world.select(rank);
  must(cudaMalloc(&at_, bytes), "cudaMalloc");
}

}  // namespace native
