// The stand-in of the library of device kernels: the same entry, whose launches run on the streams
// of gpu/cpu_runtime.hpp, over workspaces in memory that processes share.

#include "ctran/kernels/host/library.hpp"

#include <atomic>
#include <vector>

#include "ctran/kernels/host/call_fingerprint.hpp"
#include "ctran/kernels/host/local_copy.hpp"
#include "ctran/kernels/messages/device_counts.hpp"
#include "ctran/kernels/messages/messages.hpp"
#include "ctran/kernels/messages/rma.hpp"
#include "ctran/kernels/protocol/workspace_layout.hpp"
#include "ctran/reduction/reduction.hpp"
#include "gpu/cpu_runtime.hpp"
#include "standin/kernels/collectives.hpp"
#include "standin/kernels/counted.hpp"
#include "standin/kernels/host_ring.hpp"
#include "standin/kernels/messages.hpp"
#include "standin/kernels/one_sided.hpp"
#include "standin/kernels/quantized.hpp"
#include "standin/kernels/regions.hpp"
#include "standin/plan.hpp"

namespace torch::comms::standin {
namespace {

using kernels::Collective;
using kernels::KernelAlgorithm;
using kernels::KernelCall;

constexpr int kRefused = 719;
constexpr size_t kMostOfOneShot = size_t{64} << 10;

std::atomic<int64_t> launches{0};

size_t bytes_of(const KernelCall& call) { return call.count * ctran::size_of(call.dtype); }

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

const char* architectures() { return "host"; }

// The rest of a workspace: a word for each rank, which that writes where it needs the rest.
constexpr size_t kDevicePage = kernels::WorkspaceLayout::kDevicePage;
constexpr size_t kRestOffset = (sizeof(Workspace) + kDevicePage - 1) / kDevicePage * kDevicePage;
void use_rest(const kernels::TeamDescriptor& team) {
  for (int peer = 0; peer < team.size; ++peer) {
    auto* const rest =
        reinterpret_cast<uint64_t*>(static_cast<char*>(team.workspace[peer]) + kRestOffset);
    ++std::atomic_ref(rest[team.rank]);
  }
}
size_t workspace_bytes(int32_t) { return kRestOffset + sizeof(uint64_t) * kernels::kMaxRanks; }
size_t rest_offset(int32_t) { return kRestOffset; }

bool takes(int32_t ranks, const KernelCall& call) {
  if (ranks < 2 || ranks > kernels::kMaxRanks || ctran::size_of(call.dtype) == 0) return false;
  if (call.collective > Collective::kBarrier) return false;
  if (call.algorithm == KernelAlgorithm::kOneShotLL && bytes_of(call) > kMostOfOneShot)
    return false;
  return !reduces(call.collective) || ctran::Reduction::is_defined(call.dtype, call.op);
}

KernelAlgorithm choice(int32_t, const KernelCall& call, int32_t* blocks) {
  *blocks = 1;
  return bytes_of(call) <= kMostOfOneShot ? KernelAlgorithm::kOneShotLL
                                          : KernelAlgorithm::kTwoShotLL128;
}

int exchange(const kernels::TeamDescriptor& team, const kernels::MessageExchange& exchange,
             void* stream) {
  const auto fault = next_fault("Kernel");
  if (fault.fails || !kernels::is_valid(team, exchange)) return kRefused;
  ++launches;
  std::vector<kernels::KernelMessage> messages(exchange.messages,
                                               exchange.messages + exchange.count);
  gpu::cpu_launch(stream, [team, messages, limit_ns = exchange.timeout_ns, fault] {
    Launch launch(team, Collective::kExchange, 0, limit_ns);
    if (fault.hangs) launch.hang();
    run(launch, messages);
  });
  return 0;
}

bool needs_rest(int32_t, const KernelCall& call) { return bytes_of(call) > kMostOfOneShot; }

// Runs what is all in `call` when its stream has come to it. `rest`: it uses that.
template <class Of>
int enqueue(const kernels::TeamDescriptor& team, Collective collective, bool is_sound,
            const Of& call, void* stream, uint64_t print = 0, bool rest = false) {
  const auto fault = next_fault("Kernel");
  if (fault.fails || !is_sound) return kRefused;
  ++launches;
  gpu::cpu_launch(stream, [team, collective, call, fault, print, rest] {
    if (rest) use_rest(team);
    Launch launch(team, collective, print, call.timeout_ns);
    if (fault.hangs) launch.hang();
    run(launch, call);
  });
  return 0;
}

int launch(const kernels::TeamDescriptor& team, const KernelCall& call, void* stream) {
  return enqueue(team, call.collective, takes(team.size, call), call, stream,
                 kernels::fingerprint_of(call), needs_rest(team.size, call));
}

int exchange_counted(const kernels::TeamDescriptor& team, const kernels::AllToAllVDynamic& exchange,
                     void* stream) {
  return enqueue(team, Collective::kAllToAllVDynamic, kernels::is_valid(team, exchange), exchange,
                 stream);
}

int reduce_scatter_quantized(const kernels::TeamDescriptor& team,
                             const kernels::QuantizedReduceScatter& call, void* stream) {
  return enqueue(team, Collective::kQuantizedReduceScatter, call.seed != nullptr, call, stream,
                 kernels::fingerprint_of(call), /*rest=*/true);
}

int one_sided(const kernels::TeamDescriptor& team, const kernels::KernelRmaOperation& step,
              void* stream) {
  const auto which = kernels::is_wait(step.kind) ? Collective::kWaitSignal : Collective::kSignal;
  return enqueue(team, which, kernels::is_valid(team, step), step, stream);
}

// As kernels::LocalCopy asks.
struct HostStreams {
  static int record(void* event, void* stream) {
    return gpu::cpu_table().EventRecord(event, stream);
  }
  static int wait(void* stream, void* event) {
    return gpu::cpu_table().StreamWaitEvent(stream, event, 0);
  }
  static int copy(const kernels::DeviceCopy& one, void* stream) {
    return gpu::cpu_table().MemcpyAsync(one.to, one.from, one.bytes, gpu::kCopyDeviceToDevice,
                                        stream);
  }
  static int copy_by_threads(const kernels::DeviceCopy& one, void* stream) {
    return copy(one, stream);
  }
  static int find_capture(void* stream, uint64_t& id) {
    int status = 0;
    gpu::CaptureId found = 0;
    const int error = gpu::cpu_table().StreamGetCaptureInfo(stream, &status, &found, nullptr,
                                                            nullptr, nullptr, nullptr);
    id = found;
    return error;
  }
};

int launch_on_region(const kernels::TeamDescriptor& team, const kernels::WindowCollectiveCall& call,
                     void* stream) {
  const auto& one = call.call;
  const bool is_sound = kernels::is_valid(team, call);
  const auto launch = [&](const kernels::WindowCollectiveParams& params, bool reduces) {
    return enqueue(team, one.collective, is_sound,
                   RegionLaunch{params, one.op, reduces, one.timeout_ns}, stream,
                   kernels::fingerprint_of(call),
                   is_sound && kernels::pushes_operands(team.size, call));
  };
  if (!is_sound) return launch({}, false);
  const auto params = kernels::params_of(team, call);
  if (!kernels::uses_copy_engines(call))
    return launch(params, kernels::is_reduction(one.collective));
  const auto meet = [&] { return launch(params, false); };
  const auto reduce = [&] { return launch(kernels::local_reduction_params(team, call), true); };
  const auto copy = [stream](const kernels::DeviceCopy& each) {
    return HostStreams::copy(each, stream);
  };
  kernels::LocalCopy own(call.side_stream, stream, HostStreams{});
  return kernels::launch_with_copy_engines(team, call, meet, reduce, copy, own);
}

// One of the calls of a ring of commands, when its stream gets there.
int enqueue(void (*kernel)(const kernels::HostRingCall&), const kernels::HostRingCall& call,
            void* stream) {
  const auto fault = next_fault("Kernel");
  if (fault.fails) return kRefused;
  ++launches;
  gpu::cpu_launch(stream, [kernel, call] { kernel(call); });
  return 0;
}
int post_command(const kernels::HostRingCall& call, void* stream) {
  return enqueue(post, call, stream);
}
int await_command(const kernels::HostRingCall& call, void* stream) {
  return enqueue(await, call, stream);
}
int seal_output(const kernels::HostRingCall& call, void* stream) {
  return enqueue(seal, call, stream);
}

const char* error_text(int error) { return error == kRefused ? "launch refused" : "no error"; }

}  // namespace
}  // namespace torch::comms::standin

extern "C" {

__attribute__((visibility("default"))) const torch::comms::ctran::kernels::KernelFunctionTable*
torchcomms_kernels() {
  using namespace torch::comms::standin;
#ifdef TC_STANDIN_OTHER_ABI
  constexpr uint32_t kAbi = torch::comms::ctran::kernels::kAbi + 1;
#else
  constexpr uint32_t kAbi = torch::comms::ctran::kernels::kAbi;
#endif
  static constexpr torch::comms::ctran::kernels::KernelFunctionTable kLibrary{
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
      post_command,
      await_command,
      seal_output,
      rest_offset,
      needs_rest};
  return &kLibrary;
}

__attribute__((visibility("default"))) const torch::comms::ctran::kernels::WindowCollectiveTable*
torchcomms_kernels_regions() {
  using namespace torch::comms;
  static constexpr ctran::kernels::WindowCollectiveTable kLibrary{
      ctran::kernels::kWindowCollectivesVersion, ctran::kernels::can_run_on_window,
      standin::launch_on_region};
  return &kLibrary;
}

// See tests/standin/plan.hpp; the call is "ReductionLoop".
__attribute__((visibility("default"))) int torchcomms_standin_kernels_plan(const char* text) {
  return torch::comms::standin::set_plan(text) ? 0 : 1;
}

// How many messages this process has written straight to their places.
__attribute__((visibility("default"))) int64_t torchcomms_standin_kernels_straight() {
  return torch::comms::standin::zero_copy_messages();
}

// How many were launched in this process.
__attribute__((visibility("default"))) int64_t torchcomms_standin_kernels_launches() {
  return torch::comms::standin::launches;
}
}
