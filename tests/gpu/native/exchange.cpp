#include <algorithm>
#include <chrono>
#include <cstdio>

#include "post.hpp"
#include "suites.hpp"

// Messages: of all sizes, in launches of all kinds, and those that have to stop.
namespace native {
namespace {

using kernels::Collective;
using kernels::StopReason;
using Clock = std::chrono::steady_clock;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not so: " + what);
}

// Blocks of ranks that share a GPU must all be on it at once.
int most_blocks(const World& world) {
  constexpr int kOnGpu = 120;
  return std::max(1, kOnGpu / (world.ranks_of_gpu() * 2 * (world.size() - 1)));
}
int some_blocks(const World& world, std::mt19937_64& random) {
  if (!world.shares_gpus() && random() % 2 == 0) return 0;
  return 1 + static_cast<int>(random() % static_cast<uint64_t>(std::min(most_blocks(world), 16)));
}

size_t some_bytes(std::mt19937_64& random, size_t most) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:  // around where the way changes that a message goes
      return ((size_t{16} << 10) << random() % 5 * 2) + random() % 3 - 1;
    case 2:
      return random() % most;
    default:
      return random() % (size_t{1} << (1 + random() % 20));
  }
}

MessageSequence::Launch some_specs(int n, std::mt19937_64& random, size_t most_bytes) {
  // No more than a launch holds, of any rank.
  const size_t most = kernels::kMaxMessages / (2 * static_cast<size_t>(n - 1));
  MessageSequence::Launch specs;
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to) {
      if (from == to || random() % 4 == 0) continue;
      for (uint64_t count = random() % std::min<size_t>(most + 1, 5); count > 0; --count) {
        const auto shift = [&] { return random() % 2 == 0 ? 0 : random() % 16; };
        const auto any = [&] { return random() % 2 == 0; };
        specs.push_back({from, to, some_bytes(random, most_bytes), shift(), shift(), any(), any()});
      }
    }
  std::ranges::shuffle(specs, random);
  return specs;
}

// Ranks begin in any order; sometimes one is late, in the middle of the others' waiting.
void launch_all(const World& world, const MessageSequence& sequence, std::mt19937_64& random) {
  std::vector<int> order(static_cast<size_t>(world.size()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::ranges::shuffle(order, random);
  const bool straggles = random() % 4 == 0;
  for (const int rank : order) {
    if (straggles && rank == order.back()) {
      const auto start = Clock::now();
      while (Clock::now() - start < std::chrono::milliseconds(3)) {
      }
    }
    for (size_t i = 0; i < sequence.launches(); ++i)
      sequence.launch(rank, i, some_blocks(world, random));
  }
  world.synchronize();
}

// Messages of both rings follow each other: a rank knows that the rest of the workspaces is there
// when others do not yet, or launches what was captured before.
void check_rings(World& world, const Settings& settings, std::mt19937_64& random) {
  const int n = world.size(), rounds = settings.quick ? 3 : 12;
  constexpr size_t kLeast = (size_t{4} << 20) + 1;
  for (int round = 0; round < rounds; ++round) {
    std::vector<MessageSequence::Launch> launches(6);
    for (auto& specs : launches)
      for (int from = 0; from < n; ++from)
        for (const int step : {1, 2}) {
          const size_t bytes = random() % 4 == 0 ? random() % kLeast : kLeast + random() % kLeast;
          const int to = (from + step) % n;
          const bool zero_copy = random() % 4 == 0;
          if (to != from) specs.push_back({from, to, bytes, 0, 0, zero_copy, zero_copy});
        }
    const MessageSequence sequence(world, launches, random);
    for (size_t i = 0; i < sequence.launches(); ++i)
      for (int r = 0; r < n; ++r) {
        world.lack_rest(r, random() % 3 == 0);
        sequence.launch(r, i, some_blocks(world, random));
      }
    world.synchronize();
    sequence.check();
  }
  for (int r = 0; r < n; ++r) world.lack_rest(r, World::lacks_rest);
  std::printf("exchange: %d ranks, rings of both lengths\n", n);
  std::fflush(stdout);
}

void check_random(const World& world, const Settings& settings, std::mt19937_64& random) {
  const int rounds = settings.quick ? 6 : 40;
  size_t messages = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<MessageSequence::Launch> launches;
    for (int i = 0; i < 4; ++i)
      launches.push_back(some_specs(world.size(), random, settings.quick ? 1 << 20 : 6 << 20));
    const MessageSequence sequence(world, launches, random);
    launch_all(world, sequence, random);
    sequence.check();
    messages += sequence.message_count();
  }
  std::printf("exchange: %d ranks, %zu messages right\n", world.size(), messages);
  std::fflush(stdout);
}

// Rings come round many times within a launch, and are not at their beginning in the next.
void check_long(const World& world, const Settings& settings, bool zero_copy,
                std::mt19937_64& random) {
  const size_t bytes = (settings.quick ? size_t{5} << 20 : size_t{48} << 20) + 7;
  const int n = world.size();
  MessageSequence::Launch ring;
  for (int r = 0; r < n; ++r)
    ring.push_back({r, (r + 1) % n, bytes, 0, r % 2 == 0 ? 0u : 3u, zero_copy, zero_copy});
  // Behind what was written straight, rings are where they would have been.
  MessageSequence::Launch usual = ring;
  for (auto& spec : usual) spec.requests_zero_copy = false;
  const MessageSequence sequence(world, {ring, usual, ring}, random);
  for (int r = 0; r < n; ++r)
    for (const size_t i : {0, 1, 2})
      sequence.launch(r, i, world.shares_gpus() ? std::min(most_blocks(world), 8) : 0);
  world.synchronize();
  sequence.check();
}

// One side's launch is the other's many, and the rings fill up before they are taken.
void check_order(const World& world, std::mt19937_64& random) {
  MessageSequence::Launch specs;
  for (int i = 0; i < 90; ++i)
    specs.push_back({0, 1, some_bytes(random, 400000), 0, 0, i % 2 == 0, i % 3 == 0});
  const MessageSequence sequence(world, {specs, specs}, random);
  for (const size_t i : {0, 1}) {
    sequence.launch(0, i, 2);
    sequence.launch_single(1, i, 1);
  }
  world.synchronize();
  sequence.check();
}

void check_replays(const World& world, const Settings& settings, std::mt19937_64& random) {
  const int n = world.size(), replays = settings.quick ? 20 : 200;
  std::vector<MessageSequence::Launch> launches;
  for (int i = 0; i < 5; ++i) launches.push_back(some_specs(n, random, 1 << 20));
  const MessageSequence sequence(world, launches, random);
  kernels::KernelCall barrier{};
  barrier.collective = Collective::kBarrier;
  std::vector<cudaGraphExec_t> executables(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) {
    world.select(r);
    cudaGraph_t graph = nullptr;
    must(cudaStreamBeginCapture(world[r].stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (size_t i = 0; i < sequence.launches(); ++i) {
      sequence.launch(r, i, some_blocks(world, random));
      if (i % 2 == 0) world.launch(r, barrier);
    }
    must(cudaStreamEndCapture(world[r].stream, &graph), "capture");
    must(cudaGraphInstantiate(&executables[static_cast<size_t>(r)], graph, 0), "instantiate");
    must(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  const auto replay = [&](int times) {
    for (int i = 0; i < times; ++i)
      for (int r = 0; r < n; ++r) {
        world.select(r);
        must(cudaGraphLaunch(executables[static_cast<size_t>(r)], world[r].stream), "replay");
      }
    world.synchronize();
    sequence.check();
  };
  replay(replays);
  sequence.upload();
  replay(1);
  for (const auto executable : executables) must(cudaGraphExecDestroy(executable), "destroy");
  std::printf("exchange: %d ranks, %d replays right\n", n, replays);
  std::fflush(stdout);
}

void expect_stop(const World& world, int rank, StopReason why, int waited_for) {
  const auto& control = *world[rank].control;
  require(control.stop == static_cast<uint32_t>(why), "the reason of the stop is given");
  require(control.waited_for == waited_for, "the rank is given");
  require(control.collective == static_cast<uint32_t>(Collective::kExchange), "it was an exchange");
}

// Rank 1 never comes.
void check_missing(const kernels::KernelFunctionTable& library, size_t bytes, bool aborts,
                   bool zero_copy, std::mt19937_64& random) {
  const World world(library, 2);
  const MessageSequence sequence(
      world,
      {{{0, 1, 1000}},
       {{0, 1, bytes, 0, 0, zero_copy, zero_copy}, {1, 0, bytes, 0, 0, zero_copy, zero_copy}}},
      random);
  for (int r = 0; r < 2; ++r) sequence.launch(r, 0, 1);
  world.synchronize();
  world.check_alive();
  sequence.launch(0, 1, 2, aborts ? 0 : 20'000'000);
  const auto start = Clock::now();
  if (aborts) {
    require(cudaStreamQuery(world[0].stream) == cudaErrorNotReady, "kernels wait");
    *const_cast<volatile uint32_t*>(&world[0].control->abort) = 1;
  }
  must(cudaStreamSynchronize(world[0].stream), "cudaStreamSynchronize");
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  expect_stop(world, 0, aborts ? StopReason::kAborted : StopReason::kTimeout, 1);
  require(world[0].control->launch == 2, "the launch is given");
  sequence.launch(0, 1, 2, 0);  // later ones leave at once
  must(cudaStreamSynchronize(world[0].stream), "cudaStreamSynchronize");
  std::printf("exchange: %zu bytes%s, %s: left %.3f ms after\n", bytes,
              zero_copy ? " straight" : "", aborts ? "abort" : "limit of 20 ms", ms);
}

// Rank 1 waits for a message of another size; rank 0 also for one that never comes.
void check_mismatch(const kernels::KernelFunctionTable& library, size_t sent, size_t received,
                    bool zero_copy, std::mt19937_64& random) {
  const World world(library, 2);
  const MessageSequence sends(world, {{{0, 1, sent, 0, 0, zero_copy, zero_copy}, {1, 0, 10}}},
                              random);
  const MessageSequence receives(world, {{{0, 1, received, 0, 0, zero_copy, zero_copy}}}, random);
  sends.launch(0, 0, 2, 0);
  receives.launch(1, 0, 2, 0);
  world.synchronize();
  expect_stop(world, 0, StopReason::kSizeMismatch, 1);
  expect_stop(world, 1, StopReason::kSizeMismatch, 0);
  kernels::KernelCall barrier{};
  barrier.collective = Collective::kBarrier;
  world.select(0);
  world.launch(0, barrier);
  must(cudaStreamSynchronize(world[0].stream), "cudaStreamSynchronize");
}

// A send that is over when its size is found to be wrong: whatever is launched next stops.
void check_late_mismatch(const kernels::KernelFunctionTable& library, std::mt19937_64& random) {
  const World world(library, 2);
  const MessageSequence sends(world, {{{0, 1, 1000}}}, random),
      receives(world, {{{0, 1, 1001}}}, random);
  sends.launch(0, 0, 1, 0);
  world.synchronize();
  world.check_alive();
  receives.launch(1, 0, 1, 0);
  world.synchronize();
  expect_stop(world, 1, StopReason::kSizeMismatch, 0);
  kernels::KernelCall barrier{};
  barrier.collective = Collective::kBarrier;
  world.select(0);
  world.launch(0, barrier);
  must(cudaStreamSynchronize(world[0].stream), "cudaStreamSynchronize");
  require(world[0].control->stop == static_cast<uint32_t>(StopReason::kSizeMismatch),
          "the sender knows");
  require(world[0].control->waited_for == 1, "and who has said so");
}

// A message that is in its rings arrives, though its sender is gone by then; the next one never
// comes.
void check_gone(const kernels::KernelFunctionTable& library, size_t bytes,
                std::mt19937_64& random) {
  const World world(library, 2);
  const MessageSequence sent(world, {{{1, 0, bytes}}}, random),
      missing(world, {{{1, 0, bytes}}}, random);
  sent.launch(1, 0, 0);
  world.synchronize();
  world.mark_quiesced(0, 1);
  constexpr uint64_t kLimit_ns = 60'000'000'000;
  sent.launch(0, 0, 0, kLimit_ns);
  world.synchronize();
  sent.check();
  const auto start = Clock::now();
  missing.launch(0, 0, 0, kLimit_ns);
  world.synchronize();
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  expect_stop(world, 0, StopReason::kPeerLeft, 1);
  std::printf("exchange: %zu bytes, the sender is gone: left after %.3f ms\n", bytes, ms);
}

}  // namespace

void check_exchange(const kernels::KernelFunctionTable& library, const Settings& settings) {
  std::mt19937_64 random(settings.seed);
  for (int n = settings.least_ranks; n <= settings.most_ranks; ++n) {
    World world(library, n, settings.first_launch);
    check_random(world, settings, random);
    for (const bool zero_copy : {false, true}) check_long(world, settings, zero_copy, random);
    check_order(world, random);
    check_replays(world, settings, random);
    if (kernels::has_late_chunks(n)) check_rings(world, settings, random);
  }
  for (const bool aborts : {false, true})
    for (const size_t bytes : {size_t{1000}, size_t{100'000'000}})
      for (const bool zero_copy : {false, true})
        check_missing(library, bytes, aborts, zero_copy, random);
  constexpr size_t kPairs[][2] = {
      {100, 99}, {0, 1}, {1, 0}, {600000, 10}, {10, 600000}, {5000000, 4000000}, {300000, 6000000}};
  for (const auto& [sent, received] : kPairs)
    for (const bool zero_copy : {false, true})
      check_mismatch(library, sent, received, zero_copy, random);
  check_late_mismatch(library, random);
  for (const size_t bytes : {size_t{1000}, size_t{100'000}, size_t{5'000'000}})
    check_gone(library, bytes, random);
  std::printf("exchange: stops right\n");
  std::fflush(stdout);
}

}  // namespace native
