// What one call of a vendor's library costs the host beside the library: TorchComm's all_reduce
// over the stand-in library, and the least that has to be there, the library's function and an
// event behind it. A rank of its own, on a stream of host threads that is held up meanwhile, so
// that the calls alone are timed.
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

#include "backends/nccl/vendors.hpp"
#include "core/rendezvous.hpp"
#include "gpu/cpu.hpp"
#include "gpu/event_pool.hpp"
#include "gpu/runtime.hpp"

namespace {

using namespace torch::comms;
using Clock = std::chrono::steady_clock;

constexpr int kCalls = 200;
constexpr int kBlocks = 600;

struct Way {
  const char* name;
  std::function<WorkPtr()> call;
  std::vector<double> ns = {};
};

// Mean of a call, in a block of them.
double block_ns(const Way& way, gpu::NativeStream stream) {
  std::promise<void> open;
  gpu::cpu_launch(stream, [gate = open.get_future().share()] { gate.wait(); });
  WorkPtr last;
  const auto begin = Clock::now();
  for (int i = 0; i < kCalls; ++i) last = way.call();
  const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
  open.set_value();
  gpu::Runtime::cpu().synchronize(stream);
  if (last) last->hostSynchronize();
  return took.count() / kCalls;
}

}  // namespace

int main() {
  ::setenv(nccl::kNccl.variable, TC_STAND_IN_DIR "/libstand_in_nccl.so", 0);
  CommOptions options;
  options.hints["persistent_store"] = "true";
  bootstrap::Launch launch;
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
  const auto table = nccl::Table::load(nccl::kNccl);
  auto* const raw = reinterpret_cast<nccl::abi::Comm>(backend->communicator_address());
  const auto event = runtime.create_event();
  Way ways[] = {
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
  for (int turn = -kBlocks / 10; turn < kBlocks; ++turn)
    for (auto& way : ways) {
      const double ns = block_ns(way, stream);
      if (turn >= 0) way.ns.push_back(ns);
    }
  std::printf("%-40s %8s %8s %8s\n", "what", "p10 ns", "p50 ns", "p90 ns");
  for (auto& way : ways) {
    std::ranges::sort(way.ns);
    const auto at = [&](int percent) { return way.ns[way.ns.size() * percent / 100]; };
    std::printf("%-40s %8.1f %8.1f %8.1f\n", way.name, at(10), at(50), at(90));
  }
  comm->finalize();
  runtime.destroy_event(event);
  runtime.destroy_stream(stream);
}
