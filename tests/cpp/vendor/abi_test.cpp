// The interface as we declare it, held against the vendor's own header.
#include "vendor/abi.hpp"

#include <gtest/gtest.h>

#ifdef TC_TEST_NCCL_HEADER
#include <cuda.h>
#include <nccl.h>

#include <type_traits>

#include "gpu/cuda_driver.hpp"
#include "vendor/vendor_library.hpp"

// The header keeps the name to itself.
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*,
                                              CUgraph*, const CUgraphNode**, size_t*);
#undef cuGraphAddDependencies
#undef cuGraphRemoveDependencies
extern "C" CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode*, const CUgraphNode*, size_t);
extern "C" CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode*, const CUgraphNode*,
                                              size_t);
// The same call as oneCCL's, by NCCL's name.
static constexpr auto& ncclAllToAll = ::ncclAlltoAll;

namespace torch::comms::nccl {
namespace {

// A parameter is the same to a caller if it is passed the same way: pointers are alike, an
// enumeration is its integer, a structure is its size.
template <class T>
struct Passed {
  static_assert(!std::is_floating_point_v<T>);
  static constexpr bool kPointer = std::is_pointer_v<T>;
  static constexpr bool kStructure = std::is_class_v<T>;
  static constexpr size_t kSize = sizeof(T);
};
template <>
struct Passed<void> {
  static constexpr bool kPointer = false, kStructure = false;
  static constexpr size_t kSize = 0;
};
template <class A, class B>
constexpr bool same_passed() {
  return Passed<A>::kPointer == Passed<B>::kPointer &&
         Passed<A>::kStructure == Passed<B>::kStructure && Passed<A>::kSize == Passed<B>::kSize;
}

template <class A, class B>
struct SameCall : std::false_type {};
template <class R, class S, class... A, class... B>
  requires(sizeof...(A) == sizeof...(B))
struct SameCall<R(A...), S(B...)>
    : std::bool_constant<same_passed<R, S>() && (same_passed<A, B>() && ...)> {};

#define TC_SAME(name) \
  static_assert(SameCall<abi::name, std::remove_pointer_t<decltype(&::nccl##name)>>::value, #name);
#define TC_SAME_OPTIONAL(name, since) TC_SAME(name)
TC_NCCL_SYMBOLS(TC_SAME, TC_SAME_OPTIONAL)
#if NCCL_VERSION_CODE >= 22900
TC_NCCL_ONE_SIDED_SYMBOLS(TC_SAME_OPTIONAL)
static_assert(sizeof(abi::WaitSignalDesc) == sizeof(ncclWaitSignalDesc_t));
static_assert(offsetof(abi::WaitSignalDesc, count) == offsetof(ncclWaitSignalDesc_t, opCnt));
static_assert(offsetof(abi::WaitSignalDesc, peer) == offsetof(ncclWaitSignalDesc_t, peer));
static_assert(offsetof(abi::WaitSignalDesc, index) == offsetof(ncclWaitSignalDesc_t, sigIdx));
static_assert(offsetof(abi::WaitSignalDesc, context) == offsetof(ncclWaitSignalDesc_t, ctx));
static_assert(abi::kSymmetric == NCCL_WIN_COLL_SYMMETRIC &&
              abi::kWindowAlignment == NCCL_WIN_REQUIRED_ALIGNMENT);
#endif
static_assert(SameCall<abi::GetUniqueId<128>, decltype(::ncclGetUniqueId)>::value);
static_assert(SameCall<abi::CommInitRank<128>, decltype(::ncclCommInitRank)>::value);
static_assert(SameCall<abi::CommInitRankConfig<128>, decltype(::ncclCommInitRankConfig)>::value);
// The comparison itself can fail.
static_assert(!SameCall<abi::CommDestroy, decltype(::ncclCommSplit)>::value);
static_assert(!SameCall<abi::CommInitRank<4096>, decltype(::ncclCommInitRank)>::value);

static_assert(sizeof(abi::UniqueId<128>) == sizeof(ncclUniqueId));
static_assert(abi::kSuccess == ncclSuccess && abi::kRemoteError == ncclRemoteError &&
              abi::kInProgress == ncclInProgress);
static_assert(abi::kNoColor == NCCL_SPLIT_NOCOLOR && abi::kUndefined == NCCL_CONFIG_UNDEF_INT);

// CUDA's driver, whose header calls some functions by newer names.
using namespace gpu::cuda;  // NOLINT: the list's types name its structures
#define TC_SAME_DRIVER(name, ...) \
  static_assert(SameCall<__VA_ARGS__, decltype(::cu##name)>::value, #name);
TC_CUDA_DRIVER_SYMBOLS(TC_SAME_DRIVER)
static_assert(sizeof(WriteValue) == sizeof(CUstreamBatchMemOpParams));
using DriverWrite = decltype(CUstreamBatchMemOpParams::writeValue);
static_assert(offsetof(WriteValue, address) == offsetof(DriverWrite, address));
static_assert(offsetof(WriteValue, value) == offsetof(DriverWrite, value64));
static_assert(offsetof(WriteValue, flags) == offsetof(DriverWrite, flags));
static_assert(WriteValue{}.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32);
static_assert(sizeof(BatchMemOpNode) == sizeof(CUDA_BATCH_MEM_OP_NODE_PARAMS_v1));
static_assert(offsetof(BatchMemOpNode, operations) ==
              offsetof(CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, paramArray));
static_assert(kShuttingDown == CUDA_ERROR_DEINITIALIZED);
static_assert(kWaitExternal == CU_EVENT_WAIT_EXTERNAL);
static_assert(kCaptureActive == CU_STREAM_CAPTURE_STATUS_ACTIVE &&
              kNoDestructorSync == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC &&
              kMoveReferences == CU_GRAPH_USER_OBJECT_MOVE);

#define TC_VALUE(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
TC_VALUE(abi::DataType::kInt8, ncclInt8);
TC_VALUE(abi::DataType::kUint8, ncclUint8);
TC_VALUE(abi::DataType::kInt32, ncclInt32);
TC_VALUE(abi::DataType::kUint32, ncclUint32);
TC_VALUE(abi::DataType::kInt64, ncclInt64);
TC_VALUE(abi::DataType::kUint64, ncclUint64);
TC_VALUE(abi::DataType::kFloat16, ncclFloat16);
TC_VALUE(abi::DataType::kFloat32, ncclFloat32);
TC_VALUE(abi::DataType::kFloat64, ncclFloat64);
TC_VALUE(abi::DataType::kBfloat16, ncclBfloat16);
TC_VALUE(abi::DataType::kFloat8e4m3, ncclFloat8e4m3);
TC_VALUE(abi::DataType::kFloat8e5m2, ncclFloat8e5m2);
TC_VALUE(abi::RedOp::kSum, ncclSum);
TC_VALUE(abi::RedOp::kProd, ncclProd);
TC_VALUE(abi::RedOp::kMax, ncclMax);
TC_VALUE(abi::RedOp::kMin, ncclMin);
TC_VALUE(abi::RedOp::kAvg, ncclAvg);
TC_VALUE(abi::ScalarResidence::kDevice, ncclScalarDevice);
TC_VALUE(abi::ScalarResidence::kHostImmediate, ncclScalarHostImmediate);

// An older header has a shorter configuration, a newer one a longer; what both have is alike.
#define TC_FIELD(ours, theirs) \
  static_assert(offsetof(abi::Config, ours) == offsetof(ncclConfig_t, theirs))
TC_FIELD(magic, magic);
TC_FIELD(version, version);
TC_FIELD(blocking, blocking);
TC_FIELD(cga_cluster_size, cgaClusterSize);
TC_FIELD(min_ctas, minCTAs);
TC_FIELD(max_ctas, maxCTAs);
TC_FIELD(net_name, netName);
TC_FIELD(split_share, splitShare);
#if NCCL_VERSION_CODE >= 22707
TC_FIELD(traffic_class, trafficClass);
TC_FIELD(comm_name, commName);
TC_FIELD(collnet_enable, collnetEnable);
TC_FIELD(cta_policy, CTAPolicy);
TC_FIELD(shrink_share, shrinkShare);
TC_FIELD(nvls_ctas, nvlsCTAs);
#endif
#if NCCL_VERSION_CODE >= 23000
TC_FIELD(channels_per_net_peer, nChannelsPerNetPeer);
TC_FIELD(nvlink_centric_sched, nvlinkCentricSched);
TC_FIELD(graph_usage_mode, graphUsageMode);
TC_FIELD(num_rma_ctx, numRmaCtx);
TC_FIELD(max_p2p_peers, maxP2pPeers);
TC_FIELD(graph_stream_ordering, graphStreamOrdering);
static_assert(sizeof(abi::Config) == sizeof(ncclConfig_t));
#endif

TEST(NcclAbi, TheConfigurationBeginsAsTheVendorsDoes) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const abi::Config ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_EQ(ours.split_share, theirs.splitShare);
  EXPECT_EQ(ours.net_name, theirs.netName);
}

}  // namespace
}  // namespace torch::comms::nccl

#else

TEST(NcclAbi, TheConfigurationBeginsAsTheVendorsDoes) {
  GTEST_SKIP() << "no nccl.h that compiles was found when this was built";
}

#endif
