#include "ctran/kernels/library.hpp"

#include <algorithm>
#include <mutex>

#include <cuda_runtime.h>

#include "ctran/kernels/choice.hpp"
#include "ctran/kernels/counted.hpp"
#include "ctran/kernels/find.hpp"
#include "ctran/kernels/launcher.hpp"
#include "ctran/kernels/messages.hpp"
#include "ctran/kernels/one_sided.hpp"
#include "ctran/kernels/own_copy.hpp"
#include "ctran/kernels/plan.hpp"
#include "ctran/kernels/quantized.hpp"
#include "ctran/kernels/region_copies.hpp"
#include "ctran/kernels/remembered.hpp"
#include "ctran/kernels/workspace_layout.hpp"

namespace torch::comms::ctran::kernels {
namespace {

const void* find_reduction(Collective collective, Cell cell, Shape shape, int ranks) {
  auto* const find_hot = collective == Collective::kAllReduce       ? find_all_reduce
                         : collective == Collective::kReduceScatter ? find_reduce_scatter
                                                                    : find_reduce;
  for (auto* const find : {find_hot, find_cold_floats, find_cold_small_floats, find_cold_integers})
    if (const void* kernel = find(cell, shape, ranks)) return kernel;
  return nullptr;
}

const void* kernel_of(int ranks, const Call& call, Shape shape) {
  if (!is_reduction(call.collective)) return find_move(call.collective, shape, ranks);
  return find_reduction(call.collective, cell_of(call.dtype, call.op), shape, ranks);
}

bool takes(int32_t ranks, const Call& call) {
  return chosen(ranks, call).algorithm != Algorithm::kAutomatic;
}

Algorithm choice(int32_t ranks, const Call& call, int32_t* blocks) {
  const Choice choice = chosen(ranks, call);
  if (blocks != nullptr && choice.algorithm != Algorithm::kAutomatic)
    *blocks = plan_of(ranks, call, choice.algorithm, choice.blocks).blocks;
  return choice.algorithm;
}

// How a call is run. No kernel: it is not; then `error`.
struct Prepared {
  Plan plan{};
  const void* kernel = nullptr;
  const void* lean = nullptr;  // of those calls that may have it
  int error = cudaErrorInvalidValue;
};

Prepared prepare(int ranks, const Call& call) {
  Prepared made;
  const Choice choice = chosen(ranks, call);
  if (choice.algorithm == Algorithm::kAutomatic) return made;
  made.plan = plan_of(ranks, call, choice.algorithm, choice.blocks);
  made.kernel = kernel_of(ranks, call, made.plan.shape);
  if (made.kernel == nullptr) made.error = cudaErrorInvalidDeviceFunction;
  Shape lean = made.plan.shape;
  lean.is_lean = true;
  made.lean = kernel_of(ranks, call, lean);
  return made;
}

const Prepared& prepared(int ranks, const Call& call) {
  thread_local Remembered<Prepared> known;
  const CallKey key =
      key_of(call, static_cast<uint64_t>(ranks) |
                       static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 8);
  if (const Prepared* const found = known.find(key)) return *found;
  return known.keep(key, prepare(ranks, call));
}

int launch(const Team& team, const Call& call, void* stream) {
  const Prepared& how = prepared(team.size, call);
  if (how.kernel == nullptr) return how.error;
  Params params = params_of(team, call, how.plan);
  const void* const kernel = how.lean != nullptr && is_lean(params) ? how.lean : how.kernel;
  return enqueue(kernel, &params, how.plan.blocks, how.plan.threads, stream);
}

// The blocks that messages may have: a few processors are left for what else runs.
int most_exchange_blocks() {
  constexpr int kLeft = 4;
  return this_device().processors.load(std::memory_order_relaxed) - kLeft;
}

int exchange(const Team& team, const Exchange& exchange, void* stream) {
  if (!is_sound(team, exchange)) return cudaErrorInvalidValue;
  ExchangeParams params = params_of(team, exchange, most_exchange_blocks());
  return enqueue(find_exchange(params.kind), &params, params.blocks, params.threads(), stream);
}

int one_sided(const Team& team, const OneSided& step, void* stream) {
  if (!is_sound(team, step)) return cudaErrorInvalidValue;
  OneSidedParams params = params_of(team, step);
  const bool puts = step.kind == OneSided::Kind::kPut;
  return enqueue(find_one_sided(step.kind), &params, puts ? put_blocks(step.size_bytes) : 1,
                 puts ? kPutThreads : kWarp, stream);
}

int exchange_counted(const Team& team, const CountedExchange& exchange, void* stream) {
  if (!is_sound(team, exchange)) return cudaErrorInvalidValue;
  CountedParams params = params_of(team, exchange, most_exchange_blocks());
  return enqueue(find_exchange_counted(params.kind), &params, params.blocks + params.copying_blocks,
                 kExchangeThreads, stream);
}

int reduce_scatter_quantized(const Team& team, const QuantizedReduceScatter& call, void* stream) {
  QuantizedPlan plan = plan_of(team, call);
  if (plan.blocks == 0) return cudaErrorInvalidValue;
  const void* kernel = find_reduce_scatter_quantized(plan.shape.wire, team.size);
  return enqueue(kernel, &plan.params, plan.blocks, plan.threads, stream);
}
int post(const HostCall& call, void* stream) {
  HostCall params = call;
  return enqueue(find_post(), &params, 1, 1, stream);
}
int await(const HostCall& call, void* stream) {
  HostCall params = call;
  return enqueue(find_await(), &params, 1, 1, stream);
}
int seal(const HostCall& call, void* stream) {
  HostCall params = call;
  return enqueue(find_seal(), &params, 1, kMostThreads, stream);
}

const void* find_region_reduction(Cell cell, int ranks) {
  for (auto* const find : {find_region_reduction_of_floats, find_region_reduction_of_small_floats,
                           find_region_reduction_of_integers})
    if (const void* const kernel = find(cell, ranks)) return kernel;
  return nullptr;
}

RegionKernel region_kernel_of(int ranks, const Call& call, Carrier carrier) {
  if (!is_reduction(call.collective)) return find_push(carrier);
  return {find_region_reduction(cell_of(call.dtype, call.op), ranks), 0};
}

// As OwnCopy asks.
struct CudaStreams {
  int blocks;  // of threads that copy

  static int record(void* event, void* stream) {
    return cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream));
  }
  static int wait(void* stream, void* event) {
    return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event));
  }
  static int copy(const Copy& one, void* stream) {
    return cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDeviceToDevice,
                           static_cast<cudaStream_t>(stream));
  }
  int copy_by_threads(const Copy& one, void* stream) const {
    Copy params = one;
    return enqueue(find_own_copy(), &params, blocks, kRegionThreads, stream);
  }
  // Of a capture that has failed it may find no number: then one that no capture has.
  static int find_capture(void* stream, uint64_t& id) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long found = ~0ull;
    const cudaError_t error =
        cudaStreamGetCaptureInfo(static_cast<cudaStream_t>(stream), &status, &found);
    id = status == cudaStreamCaptureStatusNone ? 0 : found;
    return error;
  }
};

// `reduction`: the kernel of one.
int launch_by_copies(const Team& team, const RegionCall& call, const void* reduction,
                     void* stream) {
  const auto meet = [&]() -> int {
    RegionParams params = params_of(team, call);
    return enqueue(find_push(Carrier::kStores).kernel, &params, params.blocks, kWarp, stream);
  };
  const auto copy = [stream](const Copy& one) { return CudaStreams::copy(one, stream); };
  const int most = call.call.blocks, usual = own_blocks(team.size);
  OwnCopy own(call.side, stream, CudaStreams{most == 0 ? usual : std::min(most, usual)});
  const auto reduce = [&]() -> int {
    RegionParams params = sum_of(team, call);
    return enqueue(reduction, &params, params.blocks, kRegionThreads, stream);
  };
  return launch_by_copies(team, call, meet, reduce, copy, own);
}

int launch_on_region(const Team& team, const RegionCall& call, void* stream) {
  if (!is_sound(team, call)) return cudaErrorInvalidValue;
  const bool can_bulk = this_device().is_hopper.load(std::memory_order_relaxed);
  if (call.carrier == Carrier::kBulk && !can_bulk) return cudaErrorNotSupported;
  const auto carrier = call.carrier != Carrier::kAutomatic ? call.carrier
                       : can_bulk                          ? usual_carrier(team.size, call.call)
                                                           : Carrier::kStores;
  const auto how = region_kernel_of(team.size, call.call, carrier);
  if (how.kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  if (is_by_copies(call)) return launch_by_copies(team, call, how.kernel, stream);
  RegionParams params = params_of(team, call);
  if (params.pushes_operands)
    return enqueue(find_pushed_reduction(cell_of(params.dtype, call.call.op)), &params,
                   params.blocks, kPushingThreads, stream);
  return enqueue(how.kernel, &params, params.blocks + params.copying_blocks, kRegionThreads, stream,
                 how.shared_bytes);
}

size_t workspace_bytes(int32_t ranks) {
  if (ranks == 1) return sizeof(Header);  // nobody to send to
  return ranks < 1 || ranks > kMaxRanks ? 0 : WorkspaceLayout(ranks).bytes;
}

size_t rest_offset(int32_t ranks) {
  return ranks < 2 || ranks > kMaxRanks ? 0 : WorkspaceLayout(ranks).rest;
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

const char* architectures() { return TC_CUDA_ARCHITECTURES; }

// Also those that no kernel is for.
template <class Of>
void for_cells(Of of) {
  for (int number = 0; number <= static_cast<int>(Number::kE8m0); ++number)
    for (int verb = 0; verb <= static_cast<int>(Verb::kComplexProduct); ++verb)
      of(Cell{static_cast<Number>(number), static_cast<Verb>(verb)});
}

// A kernel that is loaded at its first launch may have to wait for those that run, which wait for
// it.
void load_all(int device) {
  int major = 0, processors = 1;
  (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  (void)cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  device_of(device).is_hopper = major >= 9;
  device_of(device).processors = processors;
  constexpr Shape kShapes[] = {{WireKind::kLL, false},       {WireKind::kLL, false, true},
                               {WireKind::kLine, false},     {WireKind::kLine, false, true},
                               {WireKind::kLine, true},      {WireKind::kLine, true, true},
                               {WireKind::kLongLine, false}, {WireKind::kLongLine, false, true},
                               {WireKind::kLongLine, true},  {WireKind::kLongLine, true, true},
                               {WireKind::kWideLine, false}, {WireKind::kWideLine, true}};
  bool runs_here = true;
  const auto load = [&runs_here](const void* kernel) {
    cudaFuncAttributes attributes;
    if (kernel != nullptr && cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
      (void)cudaGetLastError();
      runs_here = false;  // none of the architectures is this device's
    }
  };
  for (const Shape shape : kShapes)
    for (const int ranks : {2, 4, 8})
      for (int c = 0; c <= static_cast<int>(Collective::kBarrier); ++c) {
        const auto collective = static_cast<Collective>(c);
        if (!is_reduction(collective)) {
          load(find_move(collective, shape, ranks));
          continue;
        }
        for_cells([&](Cell cell) { load(find_reduction(collective, cell, shape, ranks)); });
      }
  using Kind = OneSided::Kind;
  for (const auto kind : {Kind::kSignal, Kind::kWaitSignal, Kind::kPut}) load(find_one_sided(kind));
  for (const auto kind : {MessageKind::kUsual, MessageKind::kStraight, MessageKind::kLean})
    load(find_exchange(kind));
  for (const auto kind : {MessageKind::kUsual, MessageKind::kStraight})
    load(find_exchange_counted(kind));
  for (const WireKind wire : {WireKind::kLL, WireKind::kLine, WireKind::kLongLine})
    for (const int ranks : {2, 4, 8}) load(find_reduce_scatter_quantized(wire, ranks));
  for (const void* kernel : {find_post(), find_await(), find_seal()}) load(kernel);
  const auto load_push = [&load, major](const RegionKernel& one) {
    load(one.kernel);
    if (major >= 9 && one.shared_bytes != 0 &&
        cudaFuncSetAttribute(one.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(one.shared_bytes)) != cudaSuccess)
      (void)cudaGetLastError();  // of a device that load() has refused
  };
  for (const Carrier carrier : {Carrier::kStores, Carrier::kBulk}) load_push(find_push(carrier));
  load(find_own_copy());
  for (const int ranks : {2, 4, 8})
    for_cells([&](Cell cell) { load(find_region_reduction(cell, ranks)); });
  for_cells([&](Cell cell) { load(find_pushed_reduction(cell)); });
  device_of(device).refuses = !runs_here;
}

constexpr RegionLibrary kRegionLibrary = {kRegionVersion, is_for_regions, launch_on_region};

constexpr Library kLibrary = {
    kAbi,
    architectures,
    workspace_bytes,
    takes,
    choice,
    launch,
    exchange,
    error_text,
    one_sided,
    exchange_counted,
    reduce_scatter_quantized,
    post,
    await,
    seal,
    rest_offset,
    [](int32_t ranks, const Call& call) { return needs_rest(ranks, call); }};

}  // namespace
}  // namespace torch::comms::ctran::kernels

extern "C" __attribute__((visibility("default"))) const torch::comms::ctran::kernels::Library*
torchcomms_kernels() {
  using namespace torch::comms::ctran::kernels;
  static std::once_flag loaded[kMostDevices];
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess)
    (void)cudaGetLastError();  // without a device there is nothing to load
  else if (device < kMostDevices)
    std::call_once(loaded[device], load_all, device);
  return device < kMostDevices && device_of(device).refuses ? nullptr : &kLibrary;
}

extern "C" __attribute__((visibility("default"))) const torch::comms::ctran::kernels::RegionLibrary*
torchcomms_kernels_regions() {
  return &torch::comms::ctran::kernels::kRegionLibrary;
}
