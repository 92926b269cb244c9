#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "batch.hpp"
#include "suites.hpp"

// Captured launches, and launches that have to stop.
namespace native {
namespace {

using ctran::Dtype;
using kernels::Collective;
using kernels::KernelAlgorithm;
using Clock = std::chrono::steady_clock;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not so: " + what);
}

// All-reduce of ones, of which a rank's output is wanted.
struct Ones {
  Ones(const World& world, int rank, size_t count, KernelAlgorithm algorithm)
      : input(world, rank, count * sizeof(float)), output(world, rank, count * sizeof(float)) {
    const std::vector<float> ones(count, 1.0f);
    must(cudaMemcpy(input.get(), ones.data(), count * sizeof(float), cudaMemcpyHostToDevice),
         "cudaMemcpy");
    must(cudaMemset(output.get(), 0, count * sizeof(float)), "cudaMemset");
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    call.collective = Collective::kAllReduce;
    call.algorithm = algorithm;
    call.dtype = Dtype::kFloat32;
    call.count = count;
    call.blocks = 4;
    call.input = input.get();
    call.output = output.get();
  }
  std::vector<float> result() const {
    std::vector<float> got(call.count);
    must(cudaMemcpy(got.data(), output.get(), got.size() * sizeof(float), cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    return got;
  }

  DeviceMemory input, output;
  kernels::KernelCall call{};
};

void check_nan(const Ones& ones, const std::string& when) {
  size_t numbers = 0;
  for (const float value : ones.result()) numbers += std::isnan(value) ? 0 : 1;
  require(numbers == 0,
          when + ": all of the output is NaN, " + std::to_string(numbers) + " elements are not");
}

// The last rank never comes; the others stop.
void check_stop(const kernels::KernelFunctionTable& library, int n, KernelAlgorithm algorithm,
                size_t count, bool aborts) {
  const World world(library, n);
  std::vector<Ones> ones;
  for (int r = 0; r < n; ++r) ones.emplace_back(world, r, count, algorithm);
  for (auto& one : ones) one.call.timeout_ns = aborts ? 0 : 20'000'000;
  // One that succeeds before.
  for (int r = 0; r < n; ++r) world.select(r), world.launch(r, ones[static_cast<size_t>(r)].call);
  world.synchronize();
  world.check_alive();
  for (const auto& one : ones)
    require(one.result().back() == static_cast<float>(n), "a sum of ones");

  const auto start = Clock::now();
  for (int r = 0; r + 1 < n; ++r)
    world.select(r), world.launch(r, ones[static_cast<size_t>(r)].call);
  auto aborted = start;
  if (aborts) {
    while (Clock::now() - start < std::chrono::milliseconds(10)) {
    }
    for (int r = 0; r + 1 < n; ++r) {
      require(cudaStreamQuery(world[r].stream) == cudaErrorNotReady, "kernels wait");
      *const_cast<volatile uint32_t*>(&world[r].control->abort) = 1;
    }
    aborted = Clock::now();
  }
  for (int r = 0; r + 1 < n; ++r)
    world.select(r), must(cudaStreamSynchronize(world[r].stream), "cudaStreamSynchronize");
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - aborted).count();
  const auto why = aborts ? kernels::StopReason::kAborted : kernels::StopReason::kTimeout;
  for (int r = 0; r + 1 < n; ++r) {
    const auto& control = *world[r].control;
    require(control.stop == static_cast<uint32_t>(why), "the reason of the stop is given");
    // Of a team whose members stop one after the other, somebody's data are missing.
    require(control.waited_for >= 0 && control.waited_for < n && control.waited_for != r,
            "the rank waited for is given");
    require(n > 2 || control.waited_for == n - 1, "it is the one that did not come");
    require(control.launch == 2, "the launch is given");
    require(control.collective == static_cast<uint32_t>(Collective::kAllReduce),
            "the collective is given");
    world.select(r);
    check_nan(ones[static_cast<size_t>(r)], "after a stop");
  }
  // Later launches leave at once.
  const auto again = Clock::now();
  for (int r = 0; r + 1 < n; ++r) {
    world.select(r);
    must(cudaMemset(ones[static_cast<size_t>(r)].output.get(), 0, count * sizeof(float)),
         "cudaMemset");
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    ones[static_cast<size_t>(r)].call.timeout_ns = 0;
    world.launch(r, ones[static_cast<size_t>(r)].call);
  }
  for (int r = 0; r + 1 < n; ++r) {
    world.select(r);
    must(cudaStreamSynchronize(world[r].stream), "cudaStreamSynchronize");
    check_nan(ones[static_cast<size_t>(r)], "in a launch after a stop");
  }
  const double later_ms = std::chrono::duration<double, std::milli>(Clock::now() - again).count();
  std::printf("stops: %d ranks, algorithm %d, %s: left %.3f ms after, later ones took %.3f ms\n", n,
              static_cast<int>(algorithm), aborts ? "abort" : "limit of 20 ms", ms, later_ms);
  std::fflush(stdout);
}

// Captures work on another stream that this one waits for.
void fork_and_join(cudaStream_t stream, cudaStream_t side, char* memory) {
  cudaEvent_t event = nullptr;
  must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  must(cudaEventRecord(event, stream), "cudaEventRecord");
  must(cudaStreamWaitEvent(side, event, 0), "cudaStreamWaitEvent");
  must(cudaMemsetAsync(memory, 3, 256, side), "cudaMemsetAsync");
  must(cudaEventRecord(event, side), "cudaEventRecord");
  must(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
  must(cudaEventDestroy(event), "cudaEventDestroy");
}

}  // namespace

void check_stops(const kernels::KernelFunctionTable& library, const Settings& settings) {
  for (const int n : {settings.least_ranks, settings.most_ranks})
    for (const bool aborts : {false, true})
      for (const KernelAlgorithm algorithm :
           {KernelAlgorithm::kOneShotLL, KernelAlgorithm::kOneShotLL128,
            KernelAlgorithm::kTwoShotLL128})
        check_stop(library, n, algorithm, algorithm == KernelAlgorithm::kOneShotLL ? 1000 : 300000,
                   aborts);
}

void check_graphs(const kernels::KernelFunctionTable& library, const Settings& settings) {
  const int replays = settings.quick ? 20 : 200;
  for (int n = settings.least_ranks; n <= settings.most_ranks; ++n) {
    const World world(library, n, settings.first_launch);
    std::mt19937_64 random(settings.seed);
    std::vector<Case> cases;
    for (int i = 0; i < 24; ++i) {
      Case one;
      one.collective = static_cast<Collective>(i % 9);
      one.algorithm = static_cast<KernelAlgorithm>(i % 4);
      one.count = 1 + random() % 5000;
      one.root = i % n;
      one.blocks = world.shares_gpus() ? 4 : 16;
      kernels::KernelCall call{};
      call.collective = one.collective, call.algorithm = one.algorithm, call.count = one.count;
      call.dtype = one.dtype, call.op = one.op, call.root = one.root, call.blocks = one.blocks;
      if (!library.can_launch(n, call)) one.algorithm = KernelAlgorithm::kAutomatic;
      cases.push_back(one);
    }
    const Batch batch(world, cases, random);
    std::vector<DeviceMemory> scratch;
    for (int r = 0; r < n; ++r) scratch.emplace_back(world, r, 512);
    kernels::KernelCall barrier{};
    barrier.collective = Collective::kBarrier;
    std::vector<cudaGraphExec_t> executables(static_cast<size_t>(n));
    for (int r = 0; r < n; ++r) {
      world.select(r);
      cudaGraph_t graph = nullptr;
      must(cudaStreamBeginCapture(world[r].stream, cudaStreamCaptureModeThreadLocal), "capture");
      // After what is no kernel, and after another stream.
      cudaStream_t side = nullptr;
      must(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), "cudaStreamCreate");
      const DeviceMemory& mine = scratch[static_cast<size_t>(r)];
      must(cudaMemsetAsync(mine.get(), 1, 256, world[r].stream), "cudaMemsetAsync");
      fork_and_join(world[r].stream, side, mine.get() + 256);
      batch.launch(r);
      fork_and_join(world[r].stream, side, mine.get() + 256);
      world.launch(r, barrier);
      must(cudaMemsetAsync(mine.get(), 2, 256, world[r].stream), "cudaMemsetAsync");
      world.launch(r, barrier);
      must(cudaStreamEndCapture(world[r].stream, &graph), "capture");
      must(cudaGraphInstantiate(&executables[static_cast<size_t>(r)], graph, 0), "instantiate");
      must(cudaGraphDestroy(graph), "cudaGraphDestroy");
      must(cudaStreamDestroy(side), "cudaStreamDestroy");
    }
    for (int i = 0; i < replays; ++i)
      for (int r = 0; r < n; ++r) {
        world.select(r);
        must(cudaGraphLaunch(executables[static_cast<size_t>(r)], world[r].stream), "replay");
      }
    world.synchronize();
    batch.check();
    for (const auto executable : executables) must(cudaGraphExecDestroy(executable), "destroy");
    std::printf("graphs: %d ranks, %d replays of %zu launches right\n", n, replays, batch.size());
    std::fflush(stdout);
  }
}

}  // namespace native
