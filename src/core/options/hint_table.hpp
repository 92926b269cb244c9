#pragma once

// TC_HINTS(ROW) lists every hint that a backend of this library reads, or accepts because programs
// give it to other libraries: ROW(constant, name, alias or ""). The rows are grouped by reader. The
// prefix of a hint names its backend; "nccl::" hints are for all backends over vendors' libraries.
// Other prefixes are free for backends from elsewhere. A test compares docs/reference/hints.md with
// this list.
#define TC_HINTS(ROW)                                                         \
  /* several backends */                                                      \
  ROW(kBatchInvariant, "batch_invariant", "")                                 \
  ROW(kCheckCalls, "check_calls", "")                                         \
  ROW(kPersistentStore, "persistent_store", "")                               \
  ROW(kSideChannel, "side_channel", "")                                       \
  ROW(kSideChannelInterface, "side_channel_interface", "")                    \
  /* gloo */                                                                  \
  ROW(kHostname, "hostname", "")                                              \
  ROW(kInterface, "interface", "")                                            \
  ROW(kLazy, "lazy", "")                                                      \
  /* ctran */                                                                 \
  ROW(kCtranTransport, "ctran::transport", "")                                \
  ROW(kCtranInterface, "ctran::interface", "")                                \
  ROW(kCtranHostId, "ctran::host_id", "")                                     \
  ROW(kCtranAlgorithm, "ctran::algorithm", "")                                \
  ROW(kCtranChunkBytes, "ctran::chunk_bytes", "")                             \
  ROW(kCtranTuningFile, "ctran::tuning_file", "")                             \
  ROW(kCtranKernelAlgorithm, "ctran::kernel_algorithm", "")                   \
  ROW(kCtranSingleCopy, "ctran::single_copy", "")                             \
  ROW(kRegistered, "ctran::registered", "ncclx::registered")                  \
  ROW(kWorkspace, "ctran::workspace", "ncclx::workspace")                     \
  /* backends over vendors' libraries */                                      \
  ROW(kHighPriorityStream, "is_high_priority_stream", "")                     \
  ROW(kMaxEventPoolSize, "max_event_pool_size", "")                           \
  ROW(kEnableCudaGraphSupport, "enable_cuda_graph_support", "")               \
  ROW(kGraphTimeoutCheckIntervalMs, "graph_timeout_check_interval_ms", "")    \
  ROW(kUseCurrentStream, "nccl::use_current_stream", "")                      \
  /* the libraries' configuration */                                          \
  ROW(kBlocking, "blocking", "")                                              \
  ROW(kCgaClusterSize, "cgaClusterSize", "cga_cluster_size")                  \
  ROW(kMinCtas, "minCTAs", "min_ctas")                                        \
  ROW(kMaxCtas, "maxCTAs", "max_ctas")                                        \
  ROW(kSplitShare, "splitShare", "split_share")                               \
  ROW(kTrafficClass, "trafficClass", "traffic_class")                         \
  ROW(kCollnetEnable, "collnetEnable", "collnet_enable")                      \
  ROW(kCtaPolicy, "CTAPolicy", "cta_policy")                                  \
  ROW(kShrinkShare, "shrinkShare", "shrink_share")                            \
  ROW(kNvlsCtas, "nvlsCTAs", "nvls_ctas")                                     \
  ROW(kChannelsPerNetPeer, "nChannelsPerNetPeer", "n_channels_per_net_peer")  \
  ROW(kNvlinkCentricSched, "nvlinkCentricSched", "nvlink_centric_sched")      \
  ROW(kNetName, "netName", "net_name")                                        \
  ROW(kCommName, "commName", "comm_name")                                     \
  /* ncclx, which also reads any hint without a prefix as ncclx::<hint> */    \
  ROW(kNcclxAlgorithm, "ncclx::algorithm", "")                                \
  ROW(kNcclxTuningFile, "ncclx::tuning_file", "")                             \
  ROW(kOlderHighPriorityStream, "torchcomm::ncclx::high_priority_stream", "") \
  /* accepted without effect */                                               \
  ROW(kFastInitMode, "fastInitMode", "")                                      \
  ROW(kGarbageCollectIntervalMs, "garbage_collect_interval_ms", "")           \
  ROW(kLazySetupChannels, "lazySetupChannels", "")                            \
  /* fake */                                                                  \
  ROW(kFakeRank, "fake::rank", "")                                            \
  ROW(kFakeSize, "fake::size", "")

// The hint names as constants. Code that reads a hint uses these and never spells the name itself.
namespace torch::comms::hint {

struct Hint {
  const char* name;
  const char* alias;  // another spelling, or ""
};

#define TC_ROW(constant, name, other) inline constexpr Hint constant{name, other};
TC_HINTS(TC_ROW)
#undef TC_ROW

#define TC_ROW(constant, name, other) constant,
inline constexpr Hint kAll[] = {TC_HINTS(TC_ROW)};
#undef TC_ROW

}  // namespace torch::comms::hint
