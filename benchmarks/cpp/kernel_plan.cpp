// What it costs the host to find out how kernels run a call, each time anew or remembered: the
// choice of who runs it, and the plan of its launch, as backends and the library of kernels do.
//   build/dev/bench_kernel_plan

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "ctran/kernels/host/algorithm_table.hpp"
#include "ctran/kernels/host/launch_plan.hpp"
#include "ctran/kernels/host/launch_plan_cache.hpp"

namespace {

using namespace torch::comms::ctran;
using namespace torch::comms::ctran::kernels;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2, kCalls = 20'000, kRounds = 25;

struct Planned {
  KernelAlgorithmChoice choice{};
  LaunchPlan plan{};
};

Planned planned(const KernelCall& call) {
  const KernelAlgorithmChoice choice = choose_algorithm(kRanks, call);
  return {choice, plan_of(kRanks, call, choice.algorithm, choice.blocks)};
}

// The median over rounds of a call's mean.
template <class Body>
double median_ns(const Body& body) {
  std::vector<double> means;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) body(i);
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    means.push_back(took.count() / kCalls);
  }
  std::ranges::nth_element(means, means.begin() + kRounds / 2);
  return means[kRounds / 2];
}

}  // namespace

int main() {
  TeamDescriptor team{};
  team.size = kRanks;
  // A few operations that take turns, as in a training step.
  for (const size_t bytes : {size_t{1} << 10, size_t{1} << 16, size_t{1} << 24}) {
    std::vector<KernelCall> calls;
    for (const auto collective :
         {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
      KernelCall call{};
      call.collective = collective;
      call.dtype = Dtype::kBFloat16;
      call.count = bytes / size_of(call.dtype);
      calls.push_back(call);
    }
    const auto call_of = [&](int i) -> KernelCall& {
      return calls[static_cast<size_t>(i) % calls.size()];
    };
    volatile size_t result_size = 0;
    const double uncached_ns = median_ns([&](int i) {
      // Whether the library takes it, and again what it chooses when it launches it.
      const auto& call = call_of(i);
      const bool is_supported =
          is_valid(kRanks, call) &&
          choose_algorithm(kRanks, call).algorithm != KernelAlgorithm::kAutomatic;
      const auto entry = planned(call);
      result_size = params_of(team, call, entry.plan).steps + static_cast<size_t>(is_supported);
    });
    LaunchPlanCache<bool> supported;
    LaunchPlanCache<Planned> plans;
    const double cached_ns = median_ns([&](int i) {
      const auto& call = call_of(i);
      const auto key = key_of(call, kRanks);
      const bool* is_supported = supported.find(key);
      if (is_supported == nullptr) is_supported = &supported.store(key, is_valid(kRanks, call));
      const Planned* entry = plans.find(key);
      if (entry == nullptr) entry = &plans.store(key, planned(call));
      result_size = params_of(team, call, entry->plan).steps + static_cast<size_t>(*is_supported);
    });
    const double lookup_ns = median_ns([&](int i) {
      result_size = params_of(team, call_of(i), plans.find(key_of(call_of(i), kRanks))->plan).steps;
    });
    std::printf("%8zu bytes: anew %6.1f ns, remembered %5.1f ns, its plan alone %5.1f ns\n", bytes,
                uncached_ns, cached_ns, lookup_ns);
  }
}
