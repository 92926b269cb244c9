#include "ctran/kernels/host/library.hpp"

#include <algorithm>
#include <mutex>

#include <cuda_runtime.h>

#include "ctran/kernels/collectives/quantized.hpp"
#include "ctran/kernels/host/algorithm_table.hpp"
#include "ctran/kernels/host/kernel_table.hpp"
#include "ctran/kernels/host/launch_plan.hpp"
#include "ctran/kernels/host/launch_plan_cache.hpp"
#include "ctran/kernels/host/launcher.hpp"
#include "ctran/kernels/host/local_copy.hpp"
#include "ctran/kernels/messages/device_counts.hpp"
#include "ctran/kernels/messages/messages.hpp"
#include "ctran/kernels/messages/rma.hpp"
#include "ctran/kernels/protocol/workspace_layout.hpp"
#include "ctran/kernels/windows/window_copies.hpp"

namespace torch::comms::ctran::kernels {
namespace {

const void* find_reduction(Collective collective, ReducerId id, KernelShape shape, int ranks) {
  auto* const find_hot = collective == Collective::kAllReduce       ? find_all_reduce
                         : collective == Collective::kReduceScatter ? find_reduce_scatter
                                                                    : find_reduce;
  for (auto* const find : {find_hot, find_cold_floats, find_cold_small_floats, find_cold_integers})
    if (const void* kernel = find(id, shape, ranks)) return kernel;
  return nullptr;
}

const void* kernel_of(int ranks, const KernelCall& call, KernelShape shape) {
  if (!is_reduction(call.collective)) return find_move(call.collective, shape, ranks);
  return find_reduction(call.collective, reducer_id_of(call.dtype, call.op), shape, ranks);
}

bool accepts(int32_t ranks, const KernelCall& call) {
  return resolve_algorithm(ranks, call).algorithm != KernelAlgorithm::kAutomatic;
}

KernelAlgorithm choice(int32_t ranks, const KernelCall& call, int32_t* blocks) {
  const KernelAlgorithmChoice choice = resolve_algorithm(ranks, call);
  if (blocks != nullptr && choice.algorithm != KernelAlgorithm::kAutomatic)
    *blocks = plan_of(ranks, call, choice.algorithm, choice.blocks).blocks;
  return choice.algorithm;
}

// How a call is launched. `kernel` is null if it cannot be; `error` says why.
struct PreparedLaunch {
  LaunchPlan plan{};
  const void* kernel = nullptr;
  const void* lean = nullptr;  // the lean kernel, for calls that qualify
  int error = cudaErrorInvalidValue;
};

PreparedLaunch prepare(int ranks, const KernelCall& call) {
  PreparedLaunch result;
  const KernelAlgorithmChoice choice = resolve_algorithm(ranks, call);
  if (choice.algorithm == KernelAlgorithm::kAutomatic) return result;
  result.plan = plan_of(ranks, call, choice.algorithm, choice.blocks);
  result.kernel = kernel_of(ranks, call, result.plan.shape);
  if (result.kernel == nullptr) result.error = cudaErrorInvalidDeviceFunction;
  KernelShape lean = result.plan.shape;
  lean.is_lean = true;
  result.lean = kernel_of(ranks, call, lean);
  return result;
}

const PreparedLaunch& prepared(int ranks, const KernelCall& call) {
  thread_local LaunchPlanCache<PreparedLaunch> known;
  const CallKey key =
      key_of(call, static_cast<uint64_t>(ranks) |
                       static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 8);
  if (const PreparedLaunch* const found = known.find(key)) return *found;
  return known.store(key, prepare(ranks, call));
}

int launch(const TeamDescriptor& team, const KernelCall& call, void* stream) {
  const PreparedLaunch& how = prepared(team.size, call);
  if (how.kernel == nullptr) return how.error;
  CollectiveParams params = params_of(team, call, how.plan);
  const void* const kernel = how.lean != nullptr && is_lean(params) ? how.lean : how.kernel;
  return enqueue(kernel, &params, how.plan.blocks, how.plan.threads, stream);
}

// Returns the most blocks that messages may have. A few SMs are left for other kernels.
int most_exchange_blocks() {
  constexpr int kLeft = 4;
  return this_device().multiprocessors.load(std::memory_order_relaxed) - kLeft;
}

int exchange(const TeamDescriptor& team, const MessageExchange& exchange, void* stream) {
  if (!is_valid(team, exchange)) return cudaErrorInvalidValue;
  ExchangeParams params = params_of(team, exchange, most_exchange_blocks());
  return enqueue(find_exchange(params.kind), &params, params.blocks, params.threads(), stream);
}

int rma(const TeamDescriptor& team, const KernelRmaOperation& step, void* stream) {
  if (!is_valid(team, step)) return cudaErrorInvalidValue;
  KernelRmaParams params = params_of(team, step);
  const bool puts = step.kind == KernelRmaOperation::Kind::kPut;
  return enqueue(find_rma(step.kind), &params, puts ? put_blocks(step.size_bytes) : 1,
                 puts ? kPutThreads : kWarp, stream);
}

int all_to_all_v_dynamic(const TeamDescriptor& team, const AllToAllVDynamic& exchange,
                         void* stream) {
  if (!is_valid(team, exchange)) return cudaErrorInvalidValue;
  AllToAllVDynamicParams params = params_of(team, exchange, most_exchange_blocks());
  return enqueue(find_all_to_all_v_dynamic(params.kind), &params,
                 params.blocks + params.local_copy_blocks, kExchangeThreads, stream);
}

int reduce_scatter_quantized(const TeamDescriptor& team, const QuantizedReduceScatter& call,
                             void* stream) {
  QuantizedPlan plan = plan_of(team, call);
  if (plan.blocks == 0) return cudaErrorInvalidValue;
  const void* kernel = find_reduce_scatter_quantized(plan.shape.protocol, team.size);
  return enqueue(kernel, &plan.params, plan.blocks, plan.threads, stream);
}
int post(const HostRingCall& call, void* stream) {
  HostRingCall params = call;
  return enqueue(find_post(), &params, 1, 1, stream);
}
int wait_for_command(const HostRingCall& call, void* stream) {
  HostRingCall params = call;
  return enqueue(find_wait_for_command(), &params, 1, 1, stream);
}
int poison_output(const HostRingCall& call, void* stream) {
  HostRingCall params = call;
  return enqueue(find_poison_output(), &params, 1, kMostThreads, stream);
}

const void* find_window_reduction(ReducerId id, int ranks) {
  for (auto* const find : {find_window_reduction_of_floats, find_window_reduction_of_small_floats,
                           find_window_reduction_of_integers})
    if (const void* const kernel = find(id, ranks)) return kernel;
  return nullptr;
}

WindowCollectiveKernel window_kernel_of(int ranks, const KernelCall& call, CopyMethod copy_method) {
  if (!is_reduction(call.collective)) return find_push(copy_method);
  return {find_window_reduction(reducer_id_of(call.dtype, call.op), ranks), 0};
}

// The `Runtime` of LocalCopy, by functions of CUDA.
struct CudaStreams {
  int blocks;  // of the kernel that copies

  static int record(void* event, void* stream) {
    return cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream));
  }
  static int wait(void* stream, void* event) {
    return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event));
  }
  static int copy(const DeviceCopy& one, void* stream) {
    return cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDeviceToDevice,
                           static_cast<cudaStream_t>(stream));
  }
  int copy_by_threads(const DeviceCopy& one, void* stream) const {
    DeviceCopy params = one;
    return enqueue(find_local_copy(), &params, blocks, kWindowThreads, stream);
  }
  // A capture that has failed may have no id; the result is then an id that no capture has.
  static int find_capture(void* stream, uint64_t& id) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long found = ~0ull;
    const cudaError_t error =
        cudaStreamGetCaptureInfo(static_cast<cudaStream_t>(stream), &status, &found);
    id = status == cudaStreamCaptureStatusNone ? 0 : found;
    return error;
  }
};

// `reduction`: the kernel that reduces this rank's part.
int launch_with_copy_engines(const TeamDescriptor& team, const WindowCollectiveCall& call,
                             const void* reduction, void* stream) {
  const auto synchronize = [&]() -> int {
    WindowCollectiveParams params = params_of(team, call);
    return enqueue(find_push(CopyMethod::kStores).kernel, &params, params.blocks, kWarp, stream);
  };
  const auto copy = [stream](const DeviceCopy& one) { return CudaStreams::copy(one, stream); };
  const int most = call.call.blocks, usual = default_local_copy_blocks(team.size);
  LocalCopy local_copy(call.side_stream, stream,
                       CudaStreams{most == 0 ? usual : std::min(most, usual)});
  const auto reduce = [&]() -> int {
    WindowCollectiveParams params = local_reduction_params(team, call);
    return enqueue(reduction, &params, params.blocks, kWindowThreads, stream);
  };
  return launch_with_copy_engines(team, call, synchronize, reduce, copy, local_copy);
}

int launch_on_window(const TeamDescriptor& team, const WindowCollectiveCall& call, void* stream) {
  if (!is_valid(team, call)) return cudaErrorInvalidValue;
  const bool has_tma = this_device().is_hopper.load(std::memory_order_relaxed);
  if (call.copy_method == CopyMethod::kTma && !has_tma) return cudaErrorNotSupported;
  const auto copy_method = call.copy_method != CopyMethod::kAutomatic ? call.copy_method
                           : has_tma ? default_copy_method(team.size, call.call)
                                     : CopyMethod::kStores;
  const auto how = window_kernel_of(team.size, call.call, copy_method);
  if (how.kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  if (uses_copy_engines(call)) return launch_with_copy_engines(team, call, how.kernel, stream);
  WindowCollectiveParams params = params_of(team, call);
  if (params.pushes_operands)
    return enqueue(find_pushed_reduction(reducer_id_of(params.dtype, call.call.op)), &params,
                   params.blocks, kPushingThreads, stream);
  return enqueue(how.kernel, &params, params.blocks + params.local_copy_blocks, kWindowThreads,
                 stream, how.shared_bytes);
}

size_t workspace_bytes(int32_t ranks) {
  if (ranks == 1) return sizeof(WorkspaceHeader);  // no peers
  return ranks < 1 || ranks > kMaxRanks ? 0 : WorkspaceLayout(ranks).bytes;
}

size_t rest_offset(int32_t ranks) {
  return ranks < 2 || ranks > kMaxRanks ? 0 : WorkspaceLayout(ranks).rest;
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

const char* architectures() { return TC_CUDA_ARCHITECTURES; }

// Calls of(id) for each pair of format and operation, also for pairs without a kernel.
template <class Of>
void for_reducer_ids(Of of) {
  for (int number = 0; number <= static_cast<int>(ElementFormat::kE8m0); ++number)
    for (int op = 0; op <= static_cast<int>(CombineOp::kComplexProduct); ++op)
      of(ReducerId{static_cast<ElementFormat>(number), static_cast<CombineOp>(op)});
}

// Loads all kernels to a device. A kernel that is loaded at its first launch may wait for running
// kernels, which may wait for that launch.
void load_all(int device) {
  int major = 0, processors = 1;
  (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  (void)cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  device_of(device).is_hopper = major >= 9;
  device_of(device).multiprocessors = processors;
  constexpr KernelShape kShapes[] = {
      {PacketProtocol::kLL, false},        {PacketProtocol::kLL, false, true},
      {PacketProtocol::kLL128, false},     {PacketProtocol::kLL128, false, true},
      {PacketProtocol::kLL128, true},      {PacketProtocol::kLL128, true, true},
      {PacketProtocol::kLongLL128, false}, {PacketProtocol::kLongLL128, false, true},
      {PacketProtocol::kLongLL128, true},  {PacketProtocol::kLongLL128, true, true},
      {PacketProtocol::kWideLL128, false}, {PacketProtocol::kWideLL128, true}};
  bool runs_here = true;
  const auto load = [&runs_here](const void* kernel) {
    cudaFuncAttributes attributes;
    if (kernel != nullptr && cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
      (void)cudaGetLastError();
      runs_here = false;  // the library has no code for this device's architecture
    }
  };
  for (const KernelShape shape : kShapes)
    for (const int ranks : {2, 4, 8})
      for (int c = 0; c <= static_cast<int>(Collective::kBarrier); ++c) {
        const auto collective = static_cast<Collective>(c);
        if (!is_reduction(collective)) {
          load(find_move(collective, shape, ranks));
          continue;
        }
        for_reducer_ids([&](ReducerId id) { load(find_reduction(collective, id, shape, ranks)); });
      }
  using Kind = KernelRmaOperation::Kind;
  for (const auto kind : {Kind::kSignal, Kind::kWaitSignal, Kind::kPut}) load(find_rma(kind));
  for (const auto kind : {MessageKind::kDefault, MessageKind::kZeroCopy, MessageKind::kLean})
    load(find_exchange(kind));
  for (const auto kind : {MessageKind::kDefault, MessageKind::kZeroCopy})
    load(find_all_to_all_v_dynamic(kind));
  for (const PacketProtocol protocol :
       {PacketProtocol::kLL, PacketProtocol::kLL128, PacketProtocol::kLongLL128})
    for (const int ranks : {2, 4, 8}) load(find_reduce_scatter_quantized(protocol, ranks));
  for (const void* kernel : {find_post(), find_wait_for_command(), find_poison_output()})
    load(kernel);
  const auto load_push = [&load, major](const WindowCollectiveKernel& one) {
    load(one.kernel);
    if (major >= 9 && one.shared_bytes != 0 &&
        cudaFuncSetAttribute(one.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(one.shared_bytes)) != cudaSuccess)
      (void)cudaGetLastError();  // on a device that KernelLibrary::load() refuses
  };
  for (const CopyMethod copy_method : {CopyMethod::kStores, CopyMethod::kTma})
    load_push(find_push(copy_method));
  load(find_local_copy());
  for (const int ranks : {2, 4, 8})
    for_reducer_ids([&](ReducerId id) { load(find_window_reduction(id, ranks)); });
  for_reducer_ids([&](ReducerId id) { load(find_pushed_reduction(id)); });
  device_of(device).is_unsupported = !runs_here;
}

constexpr WindowCollectiveTable kWindowCollectiveTable = {kWindowCollectivesVersion,
                                                          can_run_on_window, launch_on_window};

constexpr KernelFunctionTable kLibrary = {
    kAbi,
    architectures,
    workspace_bytes,
    accepts,
    choice,
    launch,
    exchange,
    error_text,
    rma,
    all_to_all_v_dynamic,
    reduce_scatter_quantized,
    post,
    wait_for_command,
    poison_output,
    rest_offset,
    [](int32_t ranks, const KernelCall& call) { return needs_full_workspace(ranks, call); }};

}  // namespace
}  // namespace torch::comms::ctran::kernels

extern "C" __attribute__((visibility("default")))
const torch::comms::ctran::kernels::KernelFunctionTable*
torchcomms_kernels() {
  using namespace torch::comms::ctran::kernels;
  static std::once_flag loaded[kMostDevices];
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess)
    (void)cudaGetLastError();  // without a device there is nothing to load
  else if (device < kMostDevices)
    std::call_once(loaded[device], load_all, device);
  return device < kMostDevices && device_of(device).is_unsupported ? nullptr : &kLibrary;
}

extern "C" __attribute__((visibility("default")))
const torch::comms::ctran::kernels::WindowCollectiveTable*
torchcomms_kernels_regions() {
  return &torch::comms::ctran::kernels::kWindowCollectiveTable;
}
