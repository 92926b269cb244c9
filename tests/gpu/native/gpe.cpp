#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "cases.hpp"
#include "suites.hpp"
#include "world.hpp"

// Rings of commands to the host, of GPUs that are each a host of their own: what streams post, a
// thread carries out, here for all of them.
namespace native {
namespace {

using Clock = std::chrono::steady_clock;
using ctran::Dtype;
using kernels::Collective;
using kernels::HostRing;
using kernels::HostRingCall;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not so: " + what);
}

template <class T>
T* pinned(size_t count) {
  void* at = nullptr;
  must(cudaHostAlloc(&at, count * sizeof(T), cudaHostAllocPortable | cudaHostAllocMapped),
       "cudaHostAlloc");
  std::memset(at, 0, count * sizeof(T));
  return static_cast<T*>(at);
}

template <class T>
std::atomic_ref<T> word(T& at) {
  return std::atomic_ref<T>(at);
}

constexpr size_t kSlots = 4;

// One GPU's ring, its staging memory, and a tensor.
struct Member {
  Member(const World& world, int number, size_t elements)
      : rank(number),
        count(elements),
        ring(pinned<HostRing>(1)),
        control(pinned<kernels::KernelControl>(1)),
        staging(pinned<float>(elements)),
        tensor(world, number, elements * sizeof(float)) {}
  ~Member() {
    cudaFreeHost(ring);
    cudaFreeHost(control);
    cudaFreeHost(staging);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  HostRingCall call(uint64_t limit_ns) const {
    HostRingCall call{};
    call.ring = ring;
    call.control = control;
    call.timeout_ns = limit_ns;
    call.output = tensor.get();
    call.output_bytes = count * sizeof(float);
    call.nan = 0x7fc000007fc00000;
    return call;
  }
  std::vector<float> read() const {
    std::vector<float> got(count);
    must(cudaMemcpy(got.data(), tensor.get(), count * sizeof(float), cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    return got;
  }
  void write(float value) const {
    const std::vector<float> ones(count, value);
    must(cudaMemcpy(tensor.get(), ones.data(), count * sizeof(float), cudaMemcpyHostToDevice),
         "cudaMemcpy");
    // It may return before the tensor has them, and the streams here wait for no other.
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  const int rank;
  const size_t count;
  HostRing* const ring;
  kernels::KernelControl* const control;
  float* const staging;
  const DeviceMemory tensor;
};

using Members = std::vector<std::unique_ptr<Member>>;

// Adds up what all members have in their staging memory, for each command that all have posted.
class Host {
 public:
  explicit Host(const Members& members) : members_(members), thread_([this] { run(); }) {}
  ~Host() {
    stopping_ = true;
    thread_.join();
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

 private:
  void run() {
    for (uint64_t next = 1; !stopping_; ++next) {
      for (const auto& member : members_)
        while (!stopping_ && word(command(*member, next).number).load() != next)
          std::this_thread::yield();
      if (stopping_) return;
      const auto& words = command(*members_.front(), next).words;
      for (uint64_t i = words[0]; i < words[0] + words[1]; ++i) {
        float sum = 0;
        for (const auto& member : members_) sum += member->staging[i];
        for (const auto& member : members_) member->staging[i] = sum;
      }
      for (const auto& member : members_)
        word(member->ring->done).store(next, std::memory_order_release);
    }
  }
  static kernels::HostCommand& command(const Member& member, uint64_t number) {
    return member.ring->commands[number % kernels::kHostRingSlots];
  }

  const Members& members_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// An all_reduce of a member's tensor in slots, each posted before the first is awaited.
void launch(const World& world, const Member& member, uint64_t limit_ns) {
  world.select(member.rank);
  const auto& library = world.library();
  cudaStream_t stream = world[member.rank].stream;
  const size_t part = member.count / kSlots;
  auto call = member.call(limit_ns);
  auto* const data = reinterpret_cast<float*>(member.tensor.get());
  for (size_t slot = 0; slot < kSlots; ++slot) {
    must(cudaMemcpyAsync(member.staging + slot * part, data + slot * part, part * sizeof(float),
                         cudaMemcpyDeviceToHost, stream),
         "cudaMemcpyAsync");
    call.words[0] = slot * part;
    call.words[1] = part;
    require(library.post(call, stream) == 0, "a command is posted");
  }
  for (size_t slot = 0; slot < kSlots; ++slot) {
    require(library.wait_for_command(call, stream) == 0, "a command is awaited");
    must(cudaMemcpyAsync(data + slot * part, member.staging + slot * part, part * sizeof(float),
                         cudaMemcpyHostToDevice, stream),
         "cudaMemcpyAsync");
  }
  require(library.poison_output(call, stream) == 0, "an output is sealed");
}

Members members_of(const World& world, size_t count) {
  Members members;
  for (int rank = 0; rank < world.size(); ++rank)
    members.push_back(std::make_unique<Member>(world, rank, count));
  return members;
}

void check_values(const World& world, const Members& members, double wanted,
                  const std::string& when) {
  world.synchronize();
  for (const auto& member : members) {
    world.select(member->rank);
    for (const float value : member->read())
      require(static_cast<double>(value) == wanted, "the sum of all members, " + when);
  }
}

void check_sums(const World& world, const Settings& settings) {
  const int eager = settings.quick ? 20 : 200;
  const auto members = members_of(world, 4096);
  const Host host(members);
  double wanted = 1;
  for (const auto& member : members) world.select(member->rank), member->write(1);
  const auto start = Clock::now();
  for (int turn = 0; turn < eager; ++turn) {
    // Else the numbers grow out of what a float holds.
    if (turn % 16 == 0)
      for (const auto& member : members) {
        world.synchronize();
        world.select(member->rank);
        member->write(1);
        wanted = 1;
      }
    for (const auto& member : members) launch(world, *member, 0);
    wanted *= world.size();
  }
  check_values(world, members, wanted, "eagerly");
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();

  std::vector<cudaGraphExec_t> graphs;
  for (const auto& member : members) {
    world.select(member->rank);
    member->write(1);
    cudaStream_t stream = world[member->rank].stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    launch(world, *member, 0);
    must(cudaStreamEndCapture(stream, &graph), "capture");
    must(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
    must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    graphs.push_back(executable);
  }
  constexpr int kReplays = 12;  // more commands than the ring has room for
  for (int replay = 0; replay < kReplays; ++replay)
    for (const auto& member : members) {
      world.select(member->rank);
      must(cudaGraphLaunch(graphs[static_cast<size_t>(member->rank)], world[member->rank].stream),
           "replay");
    }
  check_values(world, members, std::pow(world.size(), kReplays), "in replays");
  for (const auto graph : graphs) must(cudaGraphExecDestroy(graph), "destroy");
  std::printf("gpe: %d hosts, %d all_reduces of %zu commands right, %.1f us each, and %d replays\n",
              world.size(), eager, kSlots, us / eager, kReplays);
  std::fflush(stdout);
}

// Commands that no host carries out end by their limit or by an abort.
void check_stop(const World& world, bool aborts) {
  const auto members = members_of(world, 4096);
  // write() waits for the device, where a kernel of another rank may already wait for the abort.
  for (const auto& member : members) world.select(member->rank), member->write(1);
  for (const auto& member : members) launch(world, *member, aborts ? 0 : 20'000'000);
  const auto start = Clock::now();
  if (aborts) {
    while (Clock::now() - start < std::chrono::milliseconds(10)) {
    }
    for (const auto& member : members) word(member->control->abort).store(1);
  }
  world.synchronize();
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  const auto why = aborts ? kernels::StopReason::kAborted : kernels::StopReason::kTimeout;
  for (const auto& member : members) {
    require(member->control->stop == static_cast<uint32_t>(why), "the reason of the stop is given");
    require(member->control->launch == 1, "the command is given");
    world.select(member->rank);
    for (const float value : member->read())
      require(std::isnan(value), "all of the output is NaN after a stop");
  }
  std::printf("gpe: %d hosts, %s: left after %.3f ms\n", world.size(),
              aborts ? "abort after 10 ms" : "limit of 20 ms", ms);
  std::fflush(stdout);
}

// Kernels of a team store their results in host memory.
void check_pinned_output(const World& world) {
  constexpr size_t kCount = 10'000;
  const auto size = static_cast<size_t>(world.size());
  std::vector<DeviceMemory> inputs;
  std::vector<float*> outputs;
  for (int rank = 0; rank < world.size(); ++rank) {
    inputs.emplace_back(world, rank, size * kCount * sizeof(float));
    outputs.push_back(pinned<float>(kCount));
    const std::vector<float> ones(size * kCount, 1);
    must(cudaMemcpy(inputs.back().get(), ones.data(), ones.size() * sizeof(float),
                    cudaMemcpyHostToDevice),
         "cudaMemcpy");
  }
  for (int rank = 0; rank < world.size(); ++rank) {
    world.select(rank);
    kernels::KernelCall call{};
    call.collective = Collective::kReduceScatter;
    call.dtype = Dtype::kFloat32;
    call.count = kCount;
    call.blocks = world.shares_gpus() ? 4 : 0;
    call.input = inputs[static_cast<size_t>(rank)].get();
    call.output = outputs[static_cast<size_t>(rank)];
    world.launch(rank, call);
  }
  world.synchronize();
  world.check_alive();
  for (float* output : outputs) {
    for (size_t i = 0; i < kCount; ++i)
      require(output[i] == static_cast<float>(size), "a reduce_scatter into host memory");
    must(cudaFreeHost(output), "cudaFreeHost");
  }
  std::printf("gpe: %zu ranks, reduce_scatter into host memory right\n", size);
  std::fflush(stdout);
}

}  // namespace

void check_gpe(const kernels::KernelFunctionTable& library, const Settings& settings) {
  for (const int ranks : {settings.least_ranks, settings.most_ranks}) {
    const World world(library, ranks);
    check_sums(world, settings);
    check_stop(world, false);
    check_stop(world, true);
    check_pinned_output(world);
  }
}

}  // namespace native
