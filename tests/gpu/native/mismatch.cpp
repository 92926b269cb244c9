#include <chrono>
#include <cmath>
#include <cstdio>

#include "cases.hpp"
#include "suites.hpp"

// Ranks that call different things: they stop and say who, where numbers alone would mix their data
// or wait for ever.
namespace native {
namespace {

using ctran::Dtype;
using ctran::ReduceOpCode;
using kernels::Collective;
using kernels::KernelCall;
using Clock = std::chrono::steady_clock;

constexpr size_t kFew = 96, kMany = 300000;
constexpr uint64_t kLimit_ns = 10'000'000'000;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not so: " + what);
}

KernelCall call_of(Collective collective, size_t count) {
  KernelCall call{};
  call.collective = collective;
  call.dtype = Dtype::kFloat32;
  call.count = count;
  call.blocks = 4;
  call.timeout_ns = kLimit_ns;
  return call;
}

// What all ranks call, but the last one.
struct Disagreement {
  std::string what;
  KernelCall many, one;
};

std::vector<Disagreement> disagreements(size_t count) {
  const KernelCall sum = call_of(Collective::kAllReduce, count);
  const KernelCall from_first = call_of(Collective::kBroadcast, count);
  const auto but = [](KernelCall call, auto change) {
    change(call);
    return call;
  };
  std::vector<Disagreement> all = {
      {"count", sum, but(sum, [](KernelCall& c) { c.count -= 32; })},
      {"wider dtype", sum, but(sum, [](KernelCall& c) { c.dtype = Dtype::kFloat64; })},
      {"dtype", sum, but(sum, [](KernelCall& c) { c.dtype = Dtype::kInt32; })},
      {"reduce operation", sum, but(sum, [](KernelCall& c) { c.op = ReduceOpCode::kMax; })},
      {"barrier", sum, call_of(Collective::kBarrier, 0)},
      {"collective", sum, call_of(Collective::kAllGather, count)},
      {"nothing to reduce", sum, but(sum, [](KernelCall& c) { c.count = 0; })},
      {"root", from_first, but(from_first, [](KernelCall& c) { c.root = 1; })},
  };
  // A few elements have one block anyway.
  if (count > kFew) all.push_back({"blocks", sum, but(sum, [](KernelCall& c) { c.blocks = 2; })});
  return all;
}

// Memory for any of the calls.
struct Buffers {
  Buffers(const World& world, int rank)
      : bytes(static_cast<size_t>(world.size()) * kMany * sizeof(double)),
        input(world, rank, bytes),
        output(world, rank, bytes) {
    must(cudaMemset(input.get(), 0, bytes), "cudaMemset");
    must(cudaMemset(output.get(), 0, bytes), "cudaMemset");
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  bool has_only_nan(size_t count) const {
    std::vector<float> got(count);
    must(cudaMemcpy(got.data(), output.get(), count * sizeof(float), cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    for (const float value : got)
      if (!std::isnan(value)) return false;
    return true;
  }

  size_t bytes;
  DeviceMemory input, output;
};

class Team {
 public:
  Team(const kernels::KernelFunctionTable& library, const Settings& settings, int n)
      : world_(library, n, settings.first_launch), first_(settings.first_launch) {
    for (int r = 0; r < n; ++r) buffers_.emplace_back(world_, r);
    all([&](int r) { launch(r, call_of(Collective::kBarrier, 0)); });
    world_.check_alive();
  }

  int last() const { return world_.size() - 1; }
  const Buffers& of(int rank) const { return buffers_[static_cast<size_t>(rank)]; }
  void launch(int rank, KernelCall call) const {
    call.input = of(rank).input.get();
    call.output = of(rank).output.get();
    world_.launch(rank, call);
  }
  template <class Of>
  void all(const Of& each) const {
    for (int r = 0; r < world_.size(); ++r) world_.select(r), each(r);
    world_.synchronize();
  }
  bool has_stopped(int rank) const { return world_[rank].control->stop != 0; }
  void mark_quiesced(int rank, int peer) const { world_.mark_quiesced(rank, peer); }
  const kernels::KernelControl& control(int rank) const { return *world_[rank].control; }
  // The rank has stopped for this reason, `after` launches from the first, and names a peer.
  void expect(int rank, uint64_t after, const std::string& what) const {
    const auto& control = *world_[rank].control;
    const auto whose = what + ", rank " + std::to_string(rank) + ": ";
    require(control.stop == static_cast<uint32_t>(kernels::StopReason::kCallMismatch),
            whose + "the reason is another call, not " + std::to_string(control.stop));
    const bool is_peer =
        control.waited_for >= 0 && control.waited_for < world_.size() && control.waited_for != rank;
    require(is_peer, whose + "a peer is named, not " + std::to_string(control.waited_for));
    require(control.launch <= first_ + after, whose + "the launch is given");
  }
  // Whether someone who found it by himself names the one that is different.
  bool is_named(int rank) const {
    for (int r = 0; r < rank; ++r)
      if (world_[r].control->waited_for == rank) return true;
    return false;
  }
  // Nothing goes on after a stop.
  void expect_end(const std::string& what) const {
    const auto start = Clock::now();
    all([&](int r) {
      must(cudaMemset(of(r).output.get(), 0, kFew * sizeof(float)), "cudaMemset");
      must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      launch(r, call_of(Collective::kAllReduce, kFew));
    });
    require(Clock::now() - start < std::chrono::seconds(5), what + ": later launches end at once");
    for (int r = 0; r <= last(); ++r) {
      world_.select(r);
      require(of(r).has_only_nan(kFew), what + ": later launches have no result");
    }
  }

 private:
  World world_;
  uint64_t first_;
  std::vector<Buffers> buffers_;
};

void check_one(const kernels::KernelFunctionTable& library, const Settings& settings, int n,
               const Disagreement& one) {
  const Team team(library, settings, n);
  const auto start = Clock::now();
  team.all([&](int r) { team.launch(r, r == team.last() ? one.one : one.many); });
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  const bool all_wait = one.many.collective == Collective::kAllReduce;
  for (int r = 0; r < team.last() && all_wait; ++r) {
    team.expect(r, 1, one.what);
    require(team.of(r).has_only_nan(one.many.count), one.what + ": the output is NaN");
  }
  // Whoever had nothing to wait for learns of it now.
  team.all([&](int r) { team.launch(r, call_of(Collective::kBarrier, 0)); });
  for (int r = 0; r <= team.last(); ++r) team.expect(r, 2, one.what);
  require(team.is_named(team.last()), one.what + ": the last rank is named");
  team.expect_end(one.what);
  std::printf("mismatch: %d ranks, %zu elements, another %s: left after %.3f ms\n", n,
              one.many.count, one.what.c_str(), ms);
  std::fflush(stdout);
}

// The last rank leaves out one of a series.
void check_skipped(const kernels::KernelFunctionTable& library, const Settings& settings, int n) {
  const Team team(library, settings, n);
  const Collective series[] = {Collective::kBroadcast, Collective::kAllReduce,
                               Collective::kAllGather};
  team.all([&](int r) {
    for (const Collective one : series)
      if (r != team.last() || one != Collective::kAllReduce) team.launch(r, call_of(one, kFew));
  });
  team.all([&](int r) { team.launch(r, call_of(Collective::kBarrier, 0)); });
  for (int r = 0; r <= team.last(); ++r) team.expect(r, 4, "a launch left out");
  team.expect_end("a launch left out");
  std::printf("mismatch: %d ranks, a launch left out\n", n);
  std::fflush(stdout);
}

// The last rank writes nothing more, which the others hear while they wait for it, after what it
// has written before has been used.
void check_gone(const kernels::KernelFunctionTable& library, const Settings& settings, int n,
                KernelCall call) {
  const Team team(library, settings, n);
  const auto what = "gone, " + std::to_string(call.count) + " elements";
  call.timeout_ns = 60'000'000'000;
  team.all([&](int r) { team.launch(r, call); });
  for (int r = 0; r < n; ++r) require(!team.has_stopped(r), what + ": all of it is there");
  const auto start = Clock::now();
  team.all([&](int r) {
    if (r == team.last()) return;
    team.launch(r, call);
    team.mark_quiesced(r, team.last());
  });
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  require(ms < 10'000, what + ": they leave long before the limit");
  for (int r = 0; r < team.last(); ++r) {
    const auto& control = team.control(r);
    require(control.stop == static_cast<uint32_t>(kernels::StopReason::kPeerLeft),
            what + ": that is why, not " + std::to_string(control.stop));
    require(control.waited_for == team.last(), what + ": who it is, is said");
    require(team.of(r).has_only_nan(call.count), what + ": the output is NaN");
  }
  std::printf("mismatch: %d ranks, %zu elements, one is gone: left after %.3f ms\n", n, call.count,
              ms);
  std::fflush(stdout);
}

}  // namespace

void check_mismatch(const kernels::KernelFunctionTable& library, const Settings& settings) {
  for (int n = settings.least_ranks; n <= settings.most_ranks; ++n) {
    if (settings.quick && n != settings.least_ranks && n != settings.most_ranks) continue;
    for (const size_t count : {kFew, kMany})
      for (const Disagreement& one : disagreements(count)) check_one(library, settings, n, one);
    check_skipped(library, settings, n);
    for (const size_t count : {kFew, size_t{20000}, kMany})
      check_gone(library, settings, n, call_of(Collective::kAllReduce, count));
  }
}

}  // namespace native
