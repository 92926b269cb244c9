#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "gpu/runtime_symbols.hpp"

// The C interface that NCCL, RCCL and oneCCL share. Names are those of the vendors without their
// prefix. tests/cpp/vendor/abi_test.cpp compares numbers and layouts with nccl.h.
namespace torch::comms::nccl::abi {

using Comm = struct OpaqueComm*;
using Stream = gpu::NativeStream;

// Success is 0 in all libraries. Other numbers differ by vendor; struct Vendor has those that are
// needed.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidUsage = 5;  // NCCL and RCCL only
inline constexpr Result kRemoteError = 6;   // NCCL and RCCL only
inline constexpr Result kInProgress = 7;    // NCCL and RCCL only

enum class DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};

// Numbers above kAvg are operations created by a communicator.
enum class RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

enum class ScalarResidence : int { kDevice = 0, kHostImmediate = 1 };

// A registered window: memory of each rank that all ranks of the communicator may write to.
using Window = struct OpaqueWindow*;
inline constexpr int kSymmetric = 1;  // a window of the same size on every rank
inline constexpr size_t kWindowAlignment = 4096;
// What a rank waits for: `count` more signals of `peer`.
struct WaitSignalDesc {
  int count;
  int peer;
  int index;    // only 0 is supported
  int context;  // only 0 is supported
};

// Passed by value; its size differs by vendor.
template <size_t kBytes>
struct UniqueId {
  char internal[kBytes];
};

inline constexpr int kUndefined = INT_MIN;
inline constexpr int kNoColor = -1;

// The library reads at most `size` bytes of it; `version` says which fields are set.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 23007;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_net_peer = kUndefined;
  int nvlink_centric_sched = kUndefined;
  int graph_usage_mode = kUndefined;
  int num_rma_ctx = kUndefined;
  int max_p2p_peers = kUndefined;
  int graph_stream_ordering = kUndefined;
};

// The type of the `nranks` argument: int in NCCL; size_t in oneCCL, which has the large ids.
template <size_t kBytes>
struct RankCount {
  using Type = int;
};
template <>
struct RankCount<4096> {
  using Type = size_t;
};

using GetVersion = Result(int*);
using GetErrorString = const char*(Result);
using GetLastError = const char*(Comm);
template <size_t kBytes>
using GetUniqueId = Result(UniqueId<kBytes>*);
template <size_t kBytes>
using CommInitRank = Result(Comm*, typename RankCount<kBytes>::Type, UniqueId<kBytes>, int);
template <size_t kBytes>
using CommInitRankConfig = Result(Comm*, typename RankCount<kBytes>::Type, UniqueId<kBytes>, int,
                                  Config*);
using CommFinalize = Result(Comm);
using CommDestroy = Result(Comm);
using CommAbort = Result(Comm);
using CommCount = Result(Comm, int*);
using CommGetAsyncError = Result(Comm, Result*);
using CommRegister = Result(Comm, void*, size_t, void** handle);
using CommDeregister = Result(Comm, void* handle);
using CommWindowRegister = Result(Comm, void*, size_t, Window*, int flags);
using CommWindowDeregister = Result(Comm, Window);
using MemAlloc = Result(void**, size_t);
using MemFree = Result(void*);
using CommSplit = Result(Comm, int color, int key, Comm*, Config*);
// Collective over the ranks that stay, without the `count` ranks in `gone`.
using CommShrink = Result(Comm, int* gone, int count, Comm*, Config*, int flags);
inline constexpr int kShrinkAbort = 1;  // aborts operations of the parent communicator
using RedOpCreatePreMulSum = Result(RedOp*, void*, DataType, ScalarResidence, Comm);
using RedOpDestroy = Result(RedOp, Comm);
using GroupStart = Result();
using GroupEnd = Result();
using AllReduce = Result(const void*, void*, size_t, DataType, RedOp, Comm, Stream);
using Reduce = Result(const void*, void*, size_t, DataType, RedOp, int root, Comm, Stream);
using Broadcast = Result(const void*, void*, size_t, DataType, int root, Comm, Stream);
using AllGather = Result(const void*, void*, size_t, DataType, Comm, Stream);
using ReduceScatter = Result(const void*, void*, size_t, DataType, RedOp, Comm, Stream);
using AlltoAll = Result(const void*, void*, size_t, DataType, Comm, Stream);
using AllToAll = AlltoAll;
using Send = Result(const void*, size_t, DataType, int peer, Comm, Stream);
using Recv = Result(void*, size_t, DataType, int peer, Comm, Stream);
// A put counts as a signal, too. `index` and `context` are of the signal.
using PutSignal = Result(const void*, size_t, DataType, int peer, Window, size_t offset_bytes,
                         int index, int context, unsigned flags, Comm, Stream);
using Signal = Result(int peer, int index, int context, unsigned flags, Comm, Stream);
using WaitSignal = Result(int count, WaitSignalDesc*, Comm, Stream);

// A symbol of torchcomms, not of a vendor. A library that works on host memory exports it beside
// the vendor's functions. Its streams are those of gpu/cpu_runtime.hpp.
inline constexpr const char* kHostMemorySymbol = "torchcomms_works_on_host_memory";

}  // namespace torch::comms::nccl::abi
