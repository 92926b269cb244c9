#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctran/kernels/collectives/stochastic_rounding.hpp"
#include "suites.hpp"

// What reads its sizes, or its chance, in device memory: every element, in launches and in replays
// with other counts and seeds, and what has to stop.
namespace native {
namespace {

using kernels::Collective;
using kernels::KernelAlgorithm;
using kernels::StopReason;

constexpr uint64_t kLimit_ns = 4'000'000'000;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not so: " + what);
}

// Blocks of ranks that share a GPU must all be on it at once; 0: as many as the library likes.
int some_blocks(const World& world, std::mt19937_64& random) {
  if (!world.shares_gpus() && random() % 2 == 0) return 0;
  const int routes = 2 * (world.size() - 1) + 1;
  return 1 + static_cast<int>(random() % static_cast<uint64_t>(std::clamp(
                                             120 / (world.ranks_of_gpu() * routes), 1, 16)));
}

void upload(const World& world, int rank, char* to, const void* from, size_t bytes) {
  world.select(rank);
  must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, world[rank].stream), "upload");
  must(cudaStreamSynchronize(world[rank].stream), "upload");
}

using Counts = std::vector<std::vector<int64_t>>;  // by sender, then receiver

Counts some_counts(int n, size_t most, std::mt19937_64& random) {
  Counts counts(static_cast<size_t>(n), std::vector<int64_t>(static_cast<size_t>(n)));
  const size_t each = most / static_cast<size_t>(n);
  for (auto& row : counts)
    for (auto& count : row) {
      const size_t range = std::min(each, size_t{1} << random() % 23);
      count = static_cast<int64_t>(random() % 4 == 0 ? 0 : random() % (range + 1));
    }
  return counts;
}

// Tensors of bytes in elements of `element`, which begin off an alignment by `shift` elements.
class Parts {
 public:
  Parts(const World& world, size_t element, size_t elements, size_t shift)
      : world_(world), element_(element), elements_(elements), shift_(shift * element) {
    const size_t bytes = whole();
    for (int r = 0; r < world.size(); ++r) {
      input_.emplace_back(world, r, bytes);
      output_.emplace_back(world, r, bytes);
      counts_.emplace_back(world, r, 2 * sizeof(int64_t) * kernels::kMaxRanks);
    }
    inputs_.resize(static_cast<size_t>(world.size()), std::vector<uint8_t>(bytes));
    zero_copy_flags_.resize(inputs_.size());
  }

  // Other data, and what each rank says that it sends and receives.
  void fill(const Counts& sent, const Counts& received, std::mt19937_64& random) {
    const std::vector<uint8_t> pattern(whole(), kUntouched);
    for (int r = 0; r < world_.size(); ++r) {
      const auto row = static_cast<size_t>(r);
      zero_copy_flags_[row] = static_cast<int>(random() % 4);
      for (size_t i = 0; i + 8 <= whole(); i += 8) {
        const uint64_t bits = random();
        std::memcpy(inputs_[row].data() + i, &bits, 8);
      }
      int64_t both_counts[2][kernels::kMaxRanks] = {};
      std::ranges::copy(sent[row], both_counts[0]);
      for (size_t from = 0; from < received.size(); ++from)
        both_counts[1][from] = received[from][row];
      upload(world_, r, input_[row].get(), inputs_[row].data(), whole());
      upload(world_, r, output_[row].get(), pattern.data(), whole());
      upload(world_, r, counts_[row].get(), both_counts, sizeof both_counts);
    }
  }
  void launch(int rank, int blocks, uint64_t limit_ns = kLimit_ns) const {
    const auto row = static_cast<size_t>(rank);
    const auto* counts = reinterpret_cast<const int64_t*>(counts_[row].get());
    kernels::AllToAllVDynamic exchange{input_[row].get() + shift_,
                                       output_[row].get() + shift_,
                                       elements_,
                                       elements_,
                                       element_,
                                       counts,
                                       counts + kernels::kMaxRanks,
                                       blocks,
                                       limit_ns};
    exchange.requests_zero_copy = zero_copy_flags_[row] % 2 != 0;
    // In one process all map it at one address.
    for (int peer = 0; peer < world_.size() && zero_copy_flags_[row] >= 2; ++peer)
      exchange.zero_copy_targets[peer] = exchange.output;
    world_.exchange(rank, exchange);
  }
  std::vector<uint8_t> output(int rank) const {
    std::vector<uint8_t> got(whole());
    world_.select(rank);
    must(cudaMemcpy(got.data(), output_[static_cast<size_t>(rank)].get(), got.size(),
                    cudaMemcpyDeviceToHost),
         "download");
    return got;
  }
  // Every byte, also around the parts.
  void check(const Counts& counts) const {
    world_.check_alive();
    for (int r = 0; r < world_.size(); ++r) {
      const auto row = static_cast<size_t>(r);
      std::vector<uint8_t> want(whole(), kUntouched);
      size_t to = shift_;
      for (size_t source = 0; source < counts.size(); ++source) {
        size_t from = shift_;
        for (size_t before = 0; before < row; ++before)
          from += static_cast<size_t>(counts[source][before]) * element_;
        const size_t bytes = static_cast<size_t>(counts[source][row]) * element_;
        std::copy_n(inputs_[source].data() + from, bytes, want.data() + to);
        to += bytes;
      }
      const auto got = output(r);
      const auto place = std::ranges::mismatch(got, want).in1 - got.begin();
      require(got == want, "rank " + std::to_string(r) + " has the right byte at " +
                               std::to_string(place) + " of " + std::to_string(to));
    }
  }
  bool is_untouched(int rank) const {
    return std::ranges::all_of(output(rank), [](uint8_t byte) { return byte == kUntouched; });
  }

 private:
  static constexpr uint8_t kUntouched = 0xa5;
  size_t whole() const { return (elements_ * element_ + 2 * shift_ + 64 + 7) / 8 * 8; }

  const World& world_;
  const size_t element_, elements_, shift_;
  std::vector<DeviceMemory> input_, output_, counts_;
  std::vector<std::vector<uint8_t>> inputs_;
  std::vector<int> zero_copy_flags_;  // 1: the rank requests zero-copy; 2: it offers its addresses
};

void launch_all(const World& world, const Parts& parts, std::mt19937_64& random) {
  std::vector<int> order(static_cast<size_t>(world.size()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::ranges::shuffle(order, random);
  for (const int rank : order) parts.launch(rank, some_blocks(world, random));
  world.synchronize();
}

// A captured launch of each rank.
class Captured {
 public:
  template <class Launch>
  Captured(const World& world, const Launch& launch) : world_(world) {
    for (int r = 0; r < world.size(); ++r) {
      world.select(r);
      cudaGraph_t graph = nullptr;
      must(cudaStreamBeginCapture(world[r].stream, cudaStreamCaptureModeThreadLocal), "capture");
      launch(r);
      must(cudaStreamEndCapture(world[r].stream, &graph), "capture");
      must(cudaGraphInstantiate(&executables_.emplace_back(), graph, 0), "instantiate");
      must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    }
  }
  ~Captured() {
    for (const auto executable : executables_) cudaGraphExecDestroy(executable);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  void replay() const {
    for (int r = 0; r < world_.size(); ++r) {
      world_.select(r);
      must(cudaGraphLaunch(executables_[static_cast<size_t>(r)], world_[r].stream), "replay");
    }
    world_.synchronize();
  }

 private:
  const World& world_;
  std::vector<cudaGraphExec_t> executables_;
};

void check_parts(const World& world, const Settings& settings, std::mt19937_64& random) {
  const int rounds = settings.quick ? 6 : 30, replays = settings.quick ? 10 : 60;
  const size_t most = settings.quick ? 1 << 20 : 12 << 20;
  for (const size_t element : {1, 2, 4, 8, 16})
    for (const size_t shift : {0, 1, 3}) {
      Parts parts(world, element, most / element, shift);
      for (int round = 0; round < rounds / 5; ++round) {
        const Counts counts = some_counts(world.size(), most / element, random);
        parts.fill(counts, counts, random);
        launch_all(world, parts, random);
        parts.check(counts);
      }
    }
  Parts parts(world, 4, most / 4, 1);
  const Captured captured(world, [&](int r) { parts.launch(r, some_blocks(world, random)); });
  for (int i = 0; i < replays; ++i) {
    const Counts counts = some_counts(world.size(), most / 4, random);
    parts.fill(counts, counts, random);
    captured.replay();
    parts.check(counts);
  }
  std::printf("device_alltoallv: %d ranks, %d replays with other counts right\n", world.size(),
              replays);
  std::fflush(stdout);
}

void expect_stop(const World& world, int rank, StopReason why, int waited_for) {
  const auto& control = *world[rank].control;
  require(control.stop == static_cast<uint32_t>(why), "the reason of the stop is given");
  require(control.waited_for == waited_for, "the rank is given");
  require(control.collective == static_cast<uint32_t>(Collective::kAllToAllVDynamic),
          "it was an exchange by counts");
}

// Rank 1 expects one element more. More than a send may be ahead, so that both stop.
void check_disagreement(const kernels::KernelFunctionTable& library, int n,
                        std::mt19937_64& random) {
  const World world(library, n);
  constexpr size_t kElements = 80'000'000;
  Parts parts(world, 1, kElements, 0);
  const Counts sent(static_cast<size_t>(n),
                    std::vector<int64_t>(static_cast<size_t>(n), kElements / (n + 1)));
  Counts received = sent;
  received[0][1] += 1;
  parts.fill(sent, received, random);
  launch_all(world, parts, random);
  expect_stop(world, 1, StopReason::kSizeMismatch, 0);
  expect_stop(world, 0, StopReason::kSizeMismatch, 1);
}

void check_impossible(const kernels::KernelFunctionTable& library, int n, std::mt19937_64& random) {
  constexpr int64_t kElements = 100'000;
  const auto expect = [&](int64_t count, int peer, bool of_output) {
    const World world(library, n);
    Parts parts(world, 4, kElements, 1);
    Counts sent(static_cast<size_t>(n), std::vector<int64_t>(static_cast<size_t>(n), 1000));
    Counts received = sent;
    if (of_output)
      received[static_cast<size_t>(peer)][1] = count;
    else
      sent[1][static_cast<size_t>(peer)] = count;
    parts.fill(sent, received, random);
    launch_all(world, parts, random);
    for (int r = 0; r < n; ++r) expect_stop(world, r, StopReason::kInvalidCounts, 1);
    require(parts.is_untouched(1), "the rank with such counts has moved nothing");
    parts.launch(0, 1, 0);  // later ones leave at once
    must(cudaStreamSynchronize(world[0].stream), "cudaStreamSynchronize");
  };
  for (const bool of_output : {false, true}) {
    expect(-1, 0, of_output);
    expect(kElements, n - 1, of_output);
    expect(INT64_MAX, 0, of_output);
    expect(999, 1, of_output);  // not one for itself
  }
  std::printf("device_alltoallv: %d ranks, stops right\n", n);
  std::fflush(stdout);
}

// A reduce-scatter of rounded parts.
class Sums {
 public:
  Sums(const World& world, size_t count, size_t shift) : world_(world), count_(count) {
    const auto ranks = static_cast<size_t>(world.size());
    for (int r = 0; r < world.size(); ++r) {
      memory_.emplace_back(world, r, 64 + (ranks + 1) * (count + 2 * shift + 4) * sizeof(float));
      input_.push_back(reinterpret_cast<float*>(memory_.back().get() + 64) + shift);
      output_.push_back(input_.back() + ranks * count + shift + 3);
    }
    inputs_.resize(ranks, std::vector<float>(ranks * count));
    seeds_.resize(ranks);
  }

  void fill(std::mt19937_64& random) {
    for (int r = 0; r < world_.size(); ++r) {
      const auto row = static_cast<size_t>(r);
      for (auto& value : inputs_[row]) {
        // Of all sizes, with both signs.
        const auto bits = static_cast<uint32_t>(random());
        value = kernels::bits_as<float>((bits & 0x807fffff) | (100 + bits % 50) << 23);
      }
      seeds_[row] = random();
      upload(world_, r, memory_[row].get(), &seeds_[row], sizeof(uint64_t));
      if (count_ > 0)
        upload(world_, r, reinterpret_cast<char*>(input_[row]), inputs_[row].data(),
               inputs_[row].size() * sizeof(float));
    }
  }
  void launch(int rank, KernelAlgorithm algorithm, int blocks, bool averages, bool in_place = false,
              uint64_t limit_ns = kLimit_ns) const {
    const auto row = static_cast<size_t>(rank);
    world_.reduce_scatter(
        rank, {algorithm, blocks, count_, input_[row],
               in_place ? input_[row] + row * count_ : output_[row],
               reinterpret_cast<const uint64_t*>(memory_[row].get()), averages, limit_ns});
  }
  std::vector<float> output(int rank, bool in_place = false) const {
    const auto row = static_cast<size_t>(rank);
    std::vector<float> got(count_);
    world_.select(rank);
    must(cudaMemcpy(got.data(), in_place ? input_[row] + row * count_ : output_[row],
                    count_ * sizeof(float), cudaMemcpyDeviceToHost),
         "download");
    return got;
  }
  void check(bool averages, bool in_place = false) const {
    world_.check_alive();
    const auto ranks = static_cast<size_t>(world_.size());
    for (size_t r = 0; r < ranks; ++r) {
      const auto got = output(static_cast<int>(r), in_place);
      for (size_t i = 0; i < count_; ++i) {
        float sum = 0;
        for (size_t source = 0; source < ranks; ++source) {
          float value = inputs_[source][r * count_ + i];
          if (source != r) {
            const auto draws = kernels::draws_of(seeds_[source], static_cast<int>(source),
                                                 static_cast<int>(r), i / kernels::kDraws);
            value = kernels::BFloat16::decode(kernels::round_stochastically(
                value, kernels::draw_of(draws, static_cast<int>(i % kernels::kDraws))));
          }
          sum = source == 0 ? value : sum + value;
        }
        if (averages) sum /= static_cast<float>(ranks);
        require(std::memcmp(&got[i], &sum, sizeof sum) == 0,
                "element " + std::to_string(i) + " of " + std::to_string(count_) + " of rank " +
                    std::to_string(r) + " has the host's bits");
      }
    }
  }

 private:
  const World& world_;
  const size_t count_;
  std::vector<DeviceMemory> memory_;  // the seed, the input, the output
  std::vector<float*> input_, output_;
  std::vector<std::vector<float>> inputs_;
  std::vector<uint64_t> seeds_;
};

void check_sums(const World& world, const Settings& settings, std::mt19937_64& random) {
  constexpr size_t kCounts[] = {0, 1, 4, 7, 8, 239, 240, 241, 1000, 4096, 30011, 500'003};
  const auto blocks = [&] { return world.shares_gpus() ? 4 : 1 << random() % 7; };
  size_t cases = 0;
  for (const size_t count : kCounts)
    for (const size_t shift : {0, 1})
      for (const KernelAlgorithm algorithm :
           {KernelAlgorithm::kAutomatic, KernelAlgorithm::kOneShotLL,
            KernelAlgorithm::kOneShotLL128}) {
        if (algorithm == KernelAlgorithm::kOneShotLL && count > 2000) continue;
        Sums sums(world, count, shift);
        const bool averages = random() % 2 == 0, in_place = random() % 2 == 0;
        const int most = algorithm == KernelAlgorithm::kOneShotLL ? 0 : blocks();
        sums.fill(random);
        for (int r = 0; r < world.size(); ++r) sums.launch(r, algorithm, most, averages, in_place);
        world.synchronize();
        sums.check(averages, in_place);
        ++cases;
      }
  if (!settings.quick) {  // long lines
    Sums sums(world, size_t{24} << 20, 0);
    sums.fill(random);
    for (int r = 0; r < world.size(); ++r)
      sums.launch(r, KernelAlgorithm::kOneShotLL128, world.shares_gpus() ? 4 : 0, false);
    world.synchronize();
    sums.check(false);
  }
  Sums sums(world, 12345, 0);
  sums.fill(random);
  const Captured captured(
      world, [&](int r) { sums.launch(r, KernelAlgorithm::kAutomatic, blocks(), true); });
  for (int i = 0; i < (settings.quick ? 5 : 20); ++i) {
    captured.replay();
    const auto once = sums.output(0);
    captured.replay();
    require(sums.output(0) == once, "the same seeds give the same bits");
    sums.check(true);
    sums.fill(random);
  }
  std::printf("reduce_scatter_quantized: %d ranks, %zu cases and replays right\n", world.size(),
              cases);
  std::fflush(stdout);
}

}  // namespace

void check_device_alltoallv(const kernels::KernelFunctionTable& library, const Settings& settings) {
  std::mt19937_64 random(settings.seed);
  for (int n = settings.least_ranks; n <= settings.most_ranks; ++n) {
    const World world(library, n, settings.first_launch);
    check_parts(world, settings, random);
    check_impossible(library, n, random);
  }
  check_disagreement(library, settings.least_ranks, random);
}

void check_reduce_scatter_quantized(const kernels::KernelFunctionTable& library,
                                    const Settings& settings) {
  std::mt19937_64 random(settings.seed);
  for (int n = settings.least_ranks; n <= settings.most_ranks; ++n) {
    const World world(library, n, settings.first_launch);
    check_sums(world, settings, random);
  }
}

}  // namespace native
