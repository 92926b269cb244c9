#include <array>
#include <cstdio>
#include <string>

#include "ctran/kernels/windows/window_copies.hpp"
#include "runner.hpp"

// Collectives whose outputs peers write themselves, and reductions that read inputs where they lie.
namespace native {
namespace {

using ctran::Dtype;
using kernels::Collective;
using kernels::CopyMethod;
using kernels::StopReason;
using Clock = std::chrono::steady_clock;

constexpr Collective kCollectives[] = {Collective::kAllGather, Collective::kAllToAll,
                                       Collective::kBroadcast, Collective::kAllReduce,
                                       Collective::kReduce,    Collective::kReduceScatter};
constexpr CopyMethod kCopyMethods[] = {CopyMethod::kAutomatic, CopyMethod::kStores,
                                       CopyMethod::kTma, CopyMethod::kCopyEngine};
constexpr size_t kOfKernels = 3;  // the first ones
// The most ranks: as many are on the GPUs at once, however few those are.
constexpr int kMostRanks = 4;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not so: " + what);
}

// Reductions are the same with those.
bool is_of_pushes(CopyMethod copy_method) {
  return copy_method == CopyMethod::kStores || copy_method == CopyMethod::kTma;
}

// What reductions need, and cannot have.
void settle(Case& one) {
  if (!kernels::is_reduction(one.collective)) {
    one.dtype = Dtype::kUInt8;
    return;
  }
  if (one.collective != Collective::kReduceScatter) one.in_place = true;
}

Case random_case(Runner& runner, size_t count) {
  auto& random = runner.random();
  Case one;
  one.collective = kCollectives[random() % std::size(kCollectives)];
  one.copy_method = kCopyMethods[random() % std::size(kCopyMethods)];
  if (!runner.world().may_copy(one.collective))
    one.copy_method = kCopyMethods[random() % kOfKernels];
  do {
    // Half of them what most programs reduce.
    one.dtype =
        random() % 2 == 0 ? Dtype::kBFloat16 : static_cast<Dtype>(random() % ctran::kDtypeNumbers);
    one.op =
        static_cast<ctran::ReduceOpCode>(random() % 2 == 0 ? 0 : random() % ctran::kReduceOpCodes);
  } while (ctran::size_of(one.dtype) == 0 || one.op == ctran::ReduceOpCode::kPremulSum ||
           !kernels::is_defined(one.dtype, one.op));
  one.count = count;
  one.root = static_cast<int>(random() % static_cast<uint64_t>(runner.world().size()));
  one.blocks = runner.blocks();
  one.in_place = one.collective != Collective::kAllToAll && random() % 2 == 0;
  one.shift = random() % 2 == 0 ? 0 : random() % 40;
  one.shift_by_rank =
      random() % 2 == 0 || one.copy_method == CopyMethod::kCopyEngine ? 0 : random() % 20;
  settle(one);
  return one;
}

// Odd sizes, off alignment, in place; many in a row, with others between them.
void check_values(const kernels::KernelFunctionTable& library, const Settings& settings, int n) {
  constexpr size_t kCounts[] = {0,     1,     15,    16,     17,     255,    1000,
                                16383, 16384, 16385, 100003, 262144, 262151, 1000003};
  Runner runner(library, settings, n, 60);
  const int rounds = settings.quick ? 8 : 40;
  for (int round = 0; round < rounds; ++round)
    for (const size_t count : kCounts) {
      runner.add(random_case(runner, count));
      if (runner.random()() % 3 != 0) continue;
      Case other;
      other.collective = static_cast<Collective>(runner.random()() % 9);
      other.count = runner.random()() % 3000;
      other.root = static_cast<int>(runner.random()() % static_cast<uint64_t>(n));
      other.blocks = runner.blocks();
      runner.add(other);
    }
  runner.flush();
  std::printf("regions: %d ranks, %zu cases right\n", n, runner.done());
  std::fflush(stdout);
}

// So many tiles for each block that all its stages come round, and broadcasts have several rounds.
// All-reduces that push their operands come after each other, for their slots are the same.
void check_large_values(const kernels::KernelFunctionTable& library, const Settings& settings,
                        int n) {
  Runner runner(library, settings, n, 1);
  for (const Collective collective : kCollectives)
    for (const CopyMethod copy_method : kCopyMethods)
      for (const size_t shift : {0, 8}) {
        if (kernels::is_reduction(collective) && is_of_pushes(copy_method)) continue;
        if (copy_method == CopyMethod::kCopyEngine && !runner.world().may_copy(collective))
          continue;
        Case one = random_case(runner, (settings.quick ? 8 << 20 : 24 << 20) + 13);
        one.collective = collective;
        one.copy_method = copy_method;
        if (copy_method == CopyMethod::kCopyEngine || shift == 0) one.shift_by_rank = 0;
        one.in_place = false;
        one.shift = shift;
        one.dtype = Dtype::kBFloat16;
        one.op = ctran::ReduceOpCode::kSum;
        settle(one);
        one.blocks = runner.world().shares_gpus() ? 4 : 0;
        const bool pushes =
            collective == Collective::kAllReduce && copy_method == CopyMethod::kAutomatic;
        for (int i = 0; i < (pushes ? 4 : 1); ++i) runner.add(one);
      }
  runner.flush();
  std::printf("regions: %d ranks, %zu large cases right\n", n, runner.done());
  std::fflush(stdout);
}

void check_replays(const kernels::KernelFunctionTable& library, const Settings& settings, int n) {
  const int replays = settings.quick ? 20 : 200;
  Runner runner(library, settings, n);
  const World& world = runner.world();
  std::vector<Case> cases;
  for (int i = 0; i < 12; ++i) {
    cases.push_back(random_case(runner, 1 + runner.random()() % 200000));
    // In place a replay finds what the one before has made, which is to be the same.
    if (kernels::is_reduction(cases.back().collective)) {
      cases.back().dtype = Dtype::kBFloat16;
      cases.back().op = ctran::ReduceOpCode::kMax;
    }
    if (world.shares_gpus()) cases.back().blocks = 4;
  }
  // What a rank has for itself is copied on a branch of the graph, twice after each other.
  for (const Collective collective : {Collective::kAllGather, Collective::kAllToAll}) {
    Case& one = cases.emplace_back();
    one.collective = collective;
    one.copy_method = CopyMethod::kCopyEngine;
    one.dtype = Dtype::kUInt8;
    one.count = kernels::kForkMinBytes + 5;
  }
  const Batch batch(world, cases, runner.random());
  // A graph of all cases for each rank; or one of each, where all ranks have to have one case
  // before any has the next, in replays as well.
  std::vector<std::vector<cudaGraphExec_t>> turns;  // by turn, rank
  const size_t each = batch.goes_by_case() ? 1 : batch.size();
  for (size_t first = 0; first < batch.size(); first += each) {
    auto& executables = turns.emplace_back(static_cast<size_t>(n));
    for (int r = 0; r < n; ++r) {
      world.select(r);
      cudaGraph_t graph = nullptr;
      must(cudaStreamBeginCapture(world[r].stream, cudaStreamCaptureModeThreadLocal), "capture");
      for (size_t i = first; i < first + each; ++i) batch.launch(i, r);
      must(cudaStreamEndCapture(world[r].stream, &graph), "capture");
      must(cudaGraphInstantiate(&executables[static_cast<size_t>(r)], graph, 0), "instantiate");
      must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    }
  }
  for (int i = 0; i < replays; ++i)
    for (const auto& executables : turns)
      for (int r = 0; r < n; ++r) {
        world.select(r);
        must(cudaGraphLaunch(executables[static_cast<size_t>(r)], world[r].stream), "replay");
      }
  world.synchronize();
  batch.check();
  for (const auto& executables : turns)
    for (const auto executable : executables) must(cudaGraphExecDestroy(executable), "destroy");
  std::printf("regions: %d ranks, %d replays of %zu launches right\n", n, replays, batch.size());
  std::fflush(stdout);
}

struct Outputs {
  Outputs(const World& world, size_t bytes) {
    for (int r = 0; r < world.size(); ++r)
      memory.emplace_back(world, r, bytes * static_cast<size_t>(world.size() + 1));
  }
  kernels::WindowCollectiveCall call(Collective collective, CopyMethod copy_method, int rank,
                                     size_t bytes) const {
    const auto size = memory.size();
    kernels::WindowCollectiveCall window_call{};
    window_call.call.collective = collective;
    window_call.call.dtype = Dtype::kUInt8;
    const bool has_parts =
        collective == Collective::kAllToAll || collective == Collective::kReduceScatter;
    window_call.call.count = has_parts ? bytes / size : bytes;
    window_call.call.blocks = 4;
    char* const own = memory[static_cast<size_t>(rank)].get();
    const bool is_in_place =
        collective == Collective::kAllReduce || collective == Collective::kReduce;
    window_call.call.output = collective == Collective::kReduceScatter ? own + bytes * size : own;
    window_call.call.input =
        is_in_place || collective == Collective::kReduceScatter ? own : own + bytes * size;
    window_call.call.timeout_ns = 0;
    window_call.copy_method = copy_method;
    for (size_t r = 0; r < size; ++r) {
      window_call.memory[r] = memory[r].get();
      window_call.bytes[r] = bytes * size;
    }
    return window_call;
  }
  std::vector<DeviceMemory> memory;
};

uint64_t launches_of(const kernels::TeamDescriptor& team,
                     const kernels::WindowCollectiveCall& call) {
  if (!kernels::uses_copy_engines(call)) return 1;
  return static_cast<uint64_t>(kernels::stages_of(team, call)) + 1;
}

// The last rank never comes; those that wait for it stop.
void check_stop(const kernels::KernelFunctionTable& library, int n, CopyMethod copy_method,
                Collective collective, bool aborts) {
  constexpr size_t kBytes = 9 << 20;  // operands of an all-reduce are pushed
  const World world(library, n);
  if (copy_method == CopyMethod::kCopyEngine && !world.may_copy(collective)) return;
  const Outputs outputs(world, kBytes);
  const auto launch = [&](int rank, uint64_t limit_ns) {
    auto call = outputs.call(collective, copy_method, rank, kBytes);
    call.call.timeout_ns = limit_ns;
    world.select(rank);
    world.launch(rank, call);
  };
  for (int r = 0; r < n; ++r) launch(r, 0);
  world.synchronize();
  world.check_alive();
  const auto start = Clock::now();
  for (int r = 0; r + 1 < n; ++r) launch(r, aborts ? 0 : 20'000'000);
  auto aborted = start;
  if (aborts) {
    while (Clock::now() - start < std::chrono::milliseconds(10)) {
    }
    for (int r = 0; r + 1 < n; ++r) *const_cast<volatile uint32_t*>(&world[r].control->abort) = 1;
    aborted = Clock::now();
  }
  for (int r = 0; r + 1 < n; ++r)
    world.select(r), must(cudaStreamSynchronize(world[r].stream), "cudaStreamSynchronize");
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - aborted).count();
  const auto why = aborts ? StopReason::kAborted : StopReason::kTimeout;
  for (int r = 0; r + 1 < n; ++r) {
    const auto& control = *world[r].control;
    require(control.stop == static_cast<uint32_t>(why), "the reason of the stop is given");
    require(control.waited_for >= 0 && control.waited_for < n && control.waited_for != r,
            "the rank waited for is given");
    require(n > 2 || control.waited_for == n - 1, "it is the one that did not come");
    const auto call = outputs.call(collective, copy_method, r, kBytes);
    require(control.launch == launches_of(world[r].team, call) + 1, "the launch is given");
    require(control.collective == static_cast<uint32_t>(collective), "the collective is given");
  }
  // Later launches leave at once.
  for (int r = 0; r + 1 < n; ++r) launch(r, 0);
  for (int r = 0; r + 1 < n; ++r)
    world.select(r), must(cudaStreamSynchronize(world[r].stream), "cudaStreamSynchronize");
  std::printf("regions: %d ranks, carrier %d, collective %d, %s: left %.3f ms after\n", n,
              static_cast<int>(copy_method), static_cast<int>(collective),
              aborts ? "abort" : "limit of 20 ms", ms);
  std::fflush(stdout);
}

// What is in the window lies elsewhere.
void shift(kernels::KernelCall& call) {
  const bool is_in_place = call.output == call.input;
  if (kernels::is_reduction(call.collective)) call.input = static_cast<const char*>(call.input) + 1;
  if (!kernels::is_reduction(call.collective) || is_in_place)
    call.output = static_cast<char*>(call.output) + 1;
}

// One rank has another window, another size, or another place where all have to have the same.
enum class Other { kWindow, kSize, kPlace };
void check_mismatch(const kernels::KernelFunctionTable& library, int n, Collective collective,
                    CopyMethod copy_method, Other other) {
  constexpr size_t kBytes = 1 << 20;
  const World world(library, n);
  if (copy_method == CopyMethod::kCopyEngine && !world.may_copy(collective)) return;
  const Outputs outputs(world, kBytes);
  for (int r = 0; r < n; ++r) {
    auto call = outputs.call(collective, copy_method, r, kBytes);
    call.call.count -= 1;  // there is room for another place
    call.call.timeout_ns = 4'000'000'000;
    if (r == n - 1 && other == Other::kWindow) call.window_id = 1;
    if (r == n - 1 && other == Other::kSize) call.call.count -= 1;
    if (r == n - 1 && other == Other::kPlace) shift(call.call);
    world.select(r);
    world.launch(r, call);
  }
  world.synchronize();
  for (int r = 0; r < n; ++r)
    require(world[r].control->stop == static_cast<uint32_t>(kernels::kWindowMismatch),
            "rank " + std::to_string(r) + " of " + std::to_string(n) +
                " stops for the mismatch, not for " + std::to_string(world[r].control->stop));
}

}  // namespace

void check_regions(const kernels::KernelFunctionTable& library, const Settings& settings) {
  const int most = std::min(settings.most_ranks, kMostRanks);
  for (int n = std::min(settings.least_ranks, most); n <= most; ++n) {
    check_values(library, settings, n);
    check_large_values(library, settings, n);
    check_replays(library, settings, n);
  }
  for (const CopyMethod copy_method :
       {CopyMethod::kStores, CopyMethod::kTma, CopyMethod::kCopyEngine})
    for (const Collective collective : kCollectives)
      for (const bool aborts : {false, true}) {
        if (kernels::is_reduction(collective) && copy_method == CopyMethod::kTma) continue;
        check_stop(library, 2, copy_method, collective, aborts);
        if (most > 2) check_stop(library, most, copy_method, collective, aborts);
      }
  for (const Collective collective : kCollectives) {
    for (const Other other : {Other::kWindow, Other::kSize})
      check_mismatch(library, 2, collective, CopyMethod::kAutomatic, other);
    for (const Other other : {Other::kWindow, Other::kSize})
      check_mismatch(library, 2, collective, CopyMethod::kCopyEngine, other);
    if (!kernels::is_reduction(collective) || collective == Collective::kAllReduce)
      check_mismatch(library, 2, collective, CopyMethod::kCopyEngine, Other::kPlace);
  }
  std::printf("regions: mismatches stop all\n");
  std::fflush(stdout);
}

}  // namespace native
