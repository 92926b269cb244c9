#include "suites.hpp"

#include <array>
#include <cstdio>

#include "ctran/reduction/elements.hpp"
#include "runner.hpp"

namespace native {
namespace {

namespace ctran_test = torch::comms::ctran_test;

using ctran::Dtype;
using ctran::ReduceOpCode;
using kernels::Collective;
using kernels::KernelAlgorithm;

constexpr KernelAlgorithm kAll[] = {KernelAlgorithm::kAutomatic, KernelAlgorithm::kOneShotLL,
                                    KernelAlgorithm::kOneShotLL128, KernelAlgorithm::kTwoShotLL128};

}  // namespace

void check_shapes(const kernels::KernelFunctionTable& library, const Settings& settings) {
  constexpr size_t kCounts[] = {0,  1,  2,   3,   7,   8,    31,   33,    59,
                                60, 61, 255, 479, 481, 1000, 4099, 30011, 100003};
  for (int n = settings.least_ranks; n <= settings.most_ranks; ++n) {
    Runner runner(library, settings, n);
    for (int c = 0; c <= static_cast<int>(Collective::kBarrier); ++c)
      for (const KernelAlgorithm algorithm : kAll)
        for (const size_t count : kCounts)
          for (const bool in_place : {false, true})
            for (const size_t shift : {0, 1, 3}) {
              if (settings.quick && runner.random()() % 4 != 0) continue;
              Case one;
              one.collective = static_cast<Collective>(c);
              one.algorithm = algorithm;
              one.count = count;
              one.in_place = in_place;
              one.shift = shift;
              one.blocks = runner.blocks();
              one.root = static_cast<int>(runner.random()() % static_cast<uint64_t>(n));
              constexpr Dtype kSome[] = {Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat16,
                                         Dtype::kUInt8,    Dtype::kInt64,   Dtype::kComplex128};
              one.dtype = kSome[runner.random()() % std::size(kSome)];
              runner.add(one);
            }
    runner.flush();
    std::printf("shapes: %d ranks, %zu cases right\n", n, runner.done());
    std::fflush(stdout);
  }
}

void check_arithmetic(const kernels::KernelFunctionTable& library, const Settings& settings) {
  for (int n = settings.least_ranks; n <= settings.most_ranks; ++n) {
    Runner runner(library, settings, n);
    for (const Dtype dtype : ctran_test::kDtypes)
      for (size_t op = 0; op < ctran::kReduceOpCodes; ++op)
        for (const Collective collective :
             {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce})
          for (const KernelAlgorithm algorithm : kAll) {
            if (settings.quick && runner.random()() % 2 != 0) continue;
            Case one;
            one.collective = collective;
            one.algorithm = algorithm;
            one.dtype = dtype;
            one.op = static_cast<ReduceOpCode>(op);
            one.count = 200 + runner.random()() % 2000;
            one.blocks = runner.blocks();
            one.root = static_cast<int>(runner.random()() % static_cast<uint64_t>(n));
            one.factor_in_memory = one.op == ReduceOpCode::kPremulSum && runner.random()() % 2 == 0;
            runner.add(one);
          }
    runner.flush();
    std::printf("arithmetic: %d ranks, %zu cases right\n", n, runner.done());
    std::fflush(stdout);
  }
}

void check_sequences(const kernels::KernelFunctionTable& library, const Settings& settings) {
  const int rounds = settings.quick ? 4 : 20;
  for (int n = settings.least_ranks; n <= settings.most_ranks; ++n) {
    Runner runner(library, settings, n, 200);
    auto& random = runner.random();
    for (int i = 0; i < rounds * 200; ++i) {
      Case one;
      one.collective = static_cast<Collective>(random() % 9);
      one.algorithm = kAll[random() % std::size(kAll)];
      one.dtype = ctran_test::kDtypes[random() % std::size(ctran_test::kDtypes)];
      one.op = static_cast<ReduceOpCode>(random() % ctran::kReduceOpCodes);
      one.root = static_cast<int>(random() % static_cast<uint64_t>(n));
      one.blocks = runner.blocks();
      one.count = random() % (random() % 16 == 0 ? 40000 : 600);
      one.in_place = random() % 2 == 0;
      one.shift = random() % 4;
      // Ranks whose tensors lie otherwise have another kernel.
      if (random() % 2 == 0) one.shift_by_rank = random() % 4;
      runner.add(one);
    }
    runner.flush();
    std::printf("sequences: %d ranks, %zu cases right\n", n, runner.done());
    std::fflush(stdout);
  }
}

void check_large(const kernels::KernelFunctionTable& library, const Settings& settings) {
  for (int n = settings.least_ranks; n <= settings.most_ranks; ++n) {
    Runner runner(library, settings, n, 1);
    const size_t total = settings.quick ? 1 << 20 : 8 << 20;
    for (int c = 0; c < static_cast<int>(Collective::kBarrier); ++c)
      for (const KernelAlgorithm algorithm : kAll) {
        Case one;
        one.collective = static_cast<Collective>(c);
        one.algorithm = algorithm;
        one.dtype = Dtype::kBFloat16;
        one.blocks = runner.world().shares_gpus() ? 4 : 0;
        one.root = n - 1;
        one.count = total / static_cast<size_t>(n) + 13;
        runner.add(one);
      }
    runner.flush();
    std::printf("large: %d ranks, %zu cases right\n", n, runner.done());
    std::fflush(stdout);
  }
}

}  // namespace native
