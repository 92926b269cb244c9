// What one call of a vendor's library costs the host beside the library: TorchComm's all_reduce
// over the stand-in library, and the least that has to be there, the library's function and an
// event behind it. A rank of its own, on a stream of host threads that is held up meanwhile, so
// that the calls alone are timed. Each way is timed in blocks of calls in a row, and one call at a
// time behind a walk through memory that leaves nothing of it in a core's caches: between those two
// it lies in programs that do something else between calls, as a library does that works on GPUs.
//   build/dev/bench_vendor_overhead

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/ones.h>
#include <torchcomms/comm.hpp>

#include "backends/nccl/api/vendor_backends.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "gpu/cpu_runtime.hpp"
#include "gpu/event_pool.hpp"
#include "gpu/runtime.hpp"

namespace {

using namespace torch::comms;
using Clock = std::chrono::steady_clock;

constexpr int kCalls = 200;
constexpr int kBlocks = 600;
constexpr int kColdCalls = 20;                     // of a turn
constexpr size_t kForeignBytes = size_t{4} << 20;  // more than a core has for itself

struct Variant {
  const char* name;
  std::function<WorkPtr()> call;
  std::vector<double> ns = {};
  std::vector<double> cold_ns = {};
};

using Nanoseconds = std::chrono::duration<double, std::nano>;

// Runs `body` while the stream is held up, and ends what it has launched.
template <class Body>
void with_blocked_stream(gpu::NativeStream stream, const Body& body) {
  std::promise<void> open;
  gpu::cpu_launch(stream, [future = open.get_future().share()] { future.wait(); });
  const WorkPtr last = body();
  open.set_value();
  gpu::Runtime::cpu().synchronize(stream);
  if (last) last->hostSynchronize();
}

// Mean of a call, in a block of them.
double block_ns(const Variant& variant, gpu::NativeStream stream) {
  Nanoseconds took{};
  with_blocked_stream(stream, [&] {
    WorkPtr last;
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) last = variant.call();
    took = Clock::now() - begin;
    return last;
  });
  return took.count() / kCalls;
}

// Reads and writes what has nothing to do with a call.
void leave_caches() {
  static std::vector<char> foreign(kForeignBytes);
  constexpr size_t kLineBytes = 64;
  for (size_t at = 0; at < foreign.size(); at += kLineBytes) foreign[at] += 1;
}

void add_cold(Variant& variant, gpu::NativeStream stream) {
  with_blocked_stream(stream, [&] {
    WorkPtr last;
    for (int i = 0; i < kColdCalls; ++i) {
      leave_caches();
      const auto begin = Clock::now();
      auto work = variant.call();
      variant.cold_ns.push_back(Nanoseconds(Clock::now() - begin).count());
      last = std::move(work);
    }
    return last;
  });
}

double percentile(std::vector<double>& values, size_t percent) {
  std::ranges::sort(values);
  return values[values.size() * percent / 100];
}

}  // namespace

int main() {
  ::setenv(nccl::kNccl.library_variable, TC_STAND_IN_DIR "/libstand_in_nccl.so", 0);
  CommOptions options;
  options.hints["persistent_store"] = "true";
  bootstrap::LaunchInfo launch;
  launch.rank = 0;
  launch.size = 1;
  launch.source = "the benchmark";
  const auto backend = std::make_shared<TorchCommNCCL>("nccl");
  backend->init(at::kCPU, launch, "overhead", options);
  const auto comm = TorchComm::wrap(backend, "nccl");

  const auto& runtime = gpu::Runtime::cpu();
  auto* const stream = runtime.create_stream(false);
  const gpu::CpuStreamGuard current(stream);
  auto tensor = at::ones({2});
  const auto table = nccl::VendorLibrary::load(nccl::kNccl);
  auto* const raw = reinterpret_cast<nccl::abi::Comm>(backend->communicator_address());
  const auto event = runtime.create_event();
  Variant variants[] = {
      {"the library and an event",
       [&]() -> WorkPtr {
         table.AllReduce(tensor.mutable_data_ptr(), tensor.mutable_data_ptr(), 2,
                         nccl::abi::DataType::kFloat32, nccl::abi::RedOp::kSum, raw, stream);
         runtime.record(event, stream);
         return nullptr;
       }},
      {"all_reduce", [&] { return comm->all_reduce(tensor, ReduceOp::SUM, false); }},
      {"all_reduce, asynchronous", [&] { return comm->all_reduce(tensor, ReduceOp::SUM, true); }},
  };
  for (int round = -kBlocks / 10; round < kBlocks; ++round)
    for (auto& variant : variants) {
      const double ns = block_ns(variant, stream);
      if (round < 0) continue;
      variant.ns.push_back(ns);
      add_cold(variant, stream);
    }
  std::printf("%-26s %8s %8s %8s %12s %12s\n", "what", "p10 ns", "p50 ns", "p90 ns", "cold p10 ns",
              "cold p50 ns");
  for (auto& variant : variants)
    std::printf("%-26s %8.0f %8.0f %8.0f %12.0f %12.0f\n", variant.name, percentile(variant.ns, 10),
                percentile(variant.ns, 50), percentile(variant.ns, 90),
                percentile(variant.cold_ns, 10), percentile(variant.cold_ns, 50));
  comm->finalize();
  runtime.destroy_event(event);
  runtime.destroy_stream(stream);
}
