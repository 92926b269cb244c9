#include "measure.hpp"

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "nccl.hpp"
#include "patterns.hpp"

namespace native {
namespace {

using kernels::Collective;
using kernels::KernelAlgorithm;

constexpr size_t kPool = size_t{1} << 30;
constexpr const char* kAlgorithmNames[] = {"ours", "ll", "line", "two_line"};
struct Measured {
  Collective collective;
  Pattern pattern = {};  // of messages
};
const std::map<std::string, Measured> kCollectives = {
    {"all_reduce", {Collective::kAllReduce}},
    {"all_gather", {Collective::kAllGather}},
    {"reduce_scatter", {Collective::kReduceScatter}},
    {"all_to_all", {Collective::kAllToAll}},
    {"broadcast", {Collective::kBroadcast}},
    {"reduce", {Collective::kReduce}},
    {"send", {Collective::kExchange, Pattern::kSend}},
    {"send_recv", {Collective::kExchange, Pattern::kSendRecv}},
    {"all_to_all_v", {Collective::kExchange, Pattern::kAllToAll}}};

// bfloat16 of small whole numbers, of which sums are exact.
uint16_t bfloat16(uint32_t number) {
  const auto value = static_cast<float>(number);
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}
uint32_t number_at(int rank, size_t index) {
  return static_cast<uint32_t>((index * 7 + static_cast<size_t>(rank) * 5 + index / 1021) % 16);
}

uint16_t wanted(Collective collective, int n, int rank, size_t count, size_t index) {
  uint32_t sum = 0;
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      for (int r = 0; r < n; ++r) sum += number_at(r, index);
      return bfloat16(sum);
    case Collective::kReduceScatter:
      for (int r = 0; r < n; ++r) sum += number_at(r, index + count * static_cast<size_t>(rank));
      return bfloat16(sum);
    case Collective::kAllGather:
      return bfloat16(number_at(static_cast<int>(index / count), index % count));
    case Collective::kAllToAll:
      return bfloat16(number_at(static_cast<int>(index / count),
                                index % count + count * static_cast<size_t>(rank)));
    default:
      return bfloat16(number_at(0, index));
  }
}

struct Variant {
  std::string name;
  bool is_nccl = false, symmetric = false;
  // Of ours whose outputs are in a window.
  std::optional<kernels::CopyMethod> copy_method = std::nullopt;
  bool zero_copy = false;  // of messages
  KernelAlgorithm algorithm = KernelAlgorithm::kAutomatic;
  int blocks = 0;
  std::vector<cudaGraphExec_t> graphs;     // by rank
  std::vector<std::vector<double>> times;  // by rank and round, us
};

class Bench {
 public:
  Bench(const kernels::KernelFunctionTable& library, const Measuring& measuring)
      : measuring_(measuring), world_(library, measuring.ranks) {
    if (!measuring.nccl.empty()) nccl_ = Nccl::open(world_, measuring.nccl);
    for (int r = 0; r < world_.size(); ++r) {
      plain_in_.emplace_back(world_, r, kPool);
      plain_out_.emplace_back(world_, r, kPool);
    }
    if (nccl_) window_ = nccl_->symmetric_memory(2 * kPool);
    std::printf("# NCCL %d, windows %s\n", nccl_ ? nccl_->version() : 0,
                window_.empty() ? "no" : "yes");
    if (!measuring.json.empty()) json_ = std::fopen(measuring.json.c_str(), "a");
  }
  ~Bench() {
    if (json_ != nullptr) std::fclose(json_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void run(const std::string& name, const Measured& measured, size_t bytes) {
    const Collective collective = collective_ = measured.collective;
    const bool parts = collective == Collective::kAllGather ||
                       collective == Collective::kReduceScatter ||
                       collective == Collective::kAllToAll;
    bytes_ = bytes;
    traffic_ = {measured.pattern, world_.size(), bytes / 2};
    count_ = bytes / 2 / (parts ? static_cast<size_t>(world_.size()) : 1);
    slots_ = std::clamp<size_t>(kPool / bytes, 1, bytes < (8 << 20) ? 16 : 8);
    launches_ = bytes < (4 << 20) ? 50 : 20;
    fill();
    auto variants = variants_for();
    for (auto& variant : variants) prepare(variant);
    time(variants);
    for (auto& variant : variants) verify(variant);
    print(name, variants);
    for (auto& variant : variants)
      for (const auto graph : variant.graphs) cudaGraphExecDestroy(graph);
  }

 private:
  std::vector<Variant> variants_for() const {
    std::vector<Variant> variants;
    const auto add = [&](KernelAlgorithm algorithm, int blocks) {
      kernels::KernelCall call{};
      call.collective = collective_, call.algorithm = algorithm, call.blocks = blocks;
      call.dtype = torch::comms::ctran::Dtype::kBFloat16, call.count = count_;
      if (!exchanges() && !world_.library().can_launch(world_.size(), call)) return;
      Variant variant;
      variant.name = kAlgorithmNames[static_cast<size_t>(algorithm)];
      if (blocks != 0) variant.name += "/" + std::to_string(blocks);
      variant.algorithm = algorithm;
      variant.blocks = blocks;
      variants.push_back(variant);
    };
    add(KernelAlgorithm::kAutomatic, 0);
    if (exchanges()) {
      for (const int blocks : measuring_.blocks) add(KernelAlgorithm::kAutomatic, blocks);
      for (size_t i = 0, usual = variants.size(); i < usual; ++i) {
        auto variant = variants[i];
        variant.name.replace(0, variant.name.find('/'), "straight");
        variant.zero_copy = true;
        variants.push_back(variant);
      }
    } else if (measuring_.all_algorithms)
      for (const KernelAlgorithm algorithm :
           {KernelAlgorithm::kOneShotLL, KernelAlgorithm::kOneShotLL128,
            KernelAlgorithm::kTwoShotLL128}) {
        add(algorithm, 0);
        for (const int blocks : measuring_.blocks) add(algorithm, blocks);
      }
    const auto add_window = [&](kernels::CopyMethod copy_method, int blocks) {
      Variant variant;
      variant.name = copy_method == kernels::CopyMethod::kStores       ? "region_stores"
                     : copy_method == kernels::CopyMethod::kCopyEngine ? "region_copies"
                                                                       : "region";
      if (blocks != 0) variant.name += "/" + std::to_string(blocks);
      variant.copy_method = copy_method;
      variant.blocks = blocks;
      variants.push_back(variant);
    };
    if (has_windows()) {
      add_window(kernels::CopyMethod::kAutomatic, 0);
      kernels::WindowCollectiveCall copied{};
      copied.call.collective = collective_;
      copied.copy_method = kernels::CopyMethod::kCopyEngine;
      const bool may_copy =
          kernels::uses_copy_engines(copied) && !world_.shares_gpus();  // see Batch::goes_by_case()
      if (may_copy) add_window(kernels::CopyMethod::kCopyEngine, 0);
      const bool has_stores = measuring_.all_algorithms && !kernels::is_reduction(collective_);
      if (has_stores) add_window(kernels::CopyMethod::kStores, 0);
      for (const int blocks : measuring_.blocks) {
        add_window(kernels::CopyMethod::kAutomatic, blocks);
        if (may_copy && kernels::is_reduction(collective_))
          add_window(kernels::CopyMethod::kCopyEngine, blocks);
        if (has_stores) add_window(kernels::CopyMethod::kStores, blocks);
      }
    }
    if (nccl_) {
      variants.push_back({.name = "nccl_plain", .is_nccl = true, .graphs = {}, .times = {}});
      if (!window_.empty())
        variants.push_back(
            {.name = "nccl_window", .is_nccl = true, .symmetric = true, .graphs = {}, .times = {}});
    }
    return variants;
  }

  char* input(const Variant& v, int rank, size_t slot) const {
    const auto r = static_cast<size_t>(rank);
    return (v.symmetric ? window_[r] : plain_in_[r].get()) + slot * bytes_;
  }
  char* output(const Variant& v, int rank, size_t slot) const {
    const auto r = static_cast<size_t>(rank);
    return (v.symmetric ? window_[r] + kPool : plain_out_[r].get()) + slot * bytes_;
  }
  bool has_windows() const {
    return kernels::is_reduction(collective_) || collective_ == Collective::kAllGather ||
           collective_ == Collective::kAllToAll || collective_ == Collective::kBroadcast;
  }
  // Whether its input is the output, which every launch changes.
  bool is_in_place(const Variant& v) const {
    return v.copy_method &&
           (collective_ == Collective::kAllReduce || collective_ == Collective::kReduce);
  }
  bool exchanges() const { return collective_ == Collective::kExchange; }
  size_t input_bytes() const { return collective_ == Collective::kAllGather ? count_ * 2 : bytes_; }
  size_t output_elements(int rank) const {
    if (collective_ == Collective::kReduce && rank != 0) return 0;
    return collective_ == Collective::kAllGather  ? bytes_ / 2
           : collective_ == Collective::kAllToAll ? bytes_ / 2
                                                  : count_;
  }

  void fill() {
    for (int r = 0; r < world_.size(); ++r) {
      std::vector<uint16_t> numbers(input_bytes() / 2);
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = bfloat16(number_at(r, i));
      world_.select(r);
      for (size_t slot = 0; slot < slots_; ++slot)
        for (const bool symmetric : {false, true}) {
          if (symmetric && window_.empty()) continue;
          Variant v;
          v.symmetric = symmetric;
          must(cudaMemcpy(input(v, r, slot),
                          slot == 0 ? reinterpret_cast<char*>(numbers.data()) : input(v, r, 0),
                          input_bytes(), cudaMemcpyDefault),
               "cudaMemcpy");
          must(cudaMemset(output(v, r, slot), 0xa5, bytes_), "cudaMemset");
        }
      must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
  }

  void enqueue(const Variant& v, int rank, size_t slot) {
    constexpr uint64_t kLimit_ns = 4'000'000'000;
    if (exchanges()) {
      auto messages = traffic_.messages(rank, input(v, rank, slot), output(v, rank, slot));
      for (auto& message : messages) {
        message.requests_zero_copy = v.zero_copy;
        if (v.zero_copy)
          message.zero_copy_target = message.data;  // of receives, which all map there
      }
      if (v.is_nccl)
        nccl_->exchange(rank, messages);
      else
        world_.exchange(rank, messages, v.blocks, kLimit_ns);
      return;
    }
    kernels::KernelCall call{};
    call.collective = collective_;
    call.algorithm = v.algorithm;
    call.blocks = v.blocks;
    call.dtype = torch::comms::ctran::Dtype::kBFloat16;
    call.count = count_;
    call.input = is_in_place(v) ? output(v, rank, slot) : input(v, rank, slot);
    call.output = output_elements(rank) != 0 || v.is_nccl ? output(v, rank, slot) : nullptr;
    call.timeout_ns = kLimit_ns;
    if (v.is_nccl)
      nccl_->enqueue(rank, call);
    else if (v.copy_method)
      world_.launch(rank, on_window(call, *v.copy_method));
    else
      world_.launch(rank, call);
  }

  kernels::WindowCollectiveCall on_window(const kernels::KernelCall& call,
                                          kernels::CopyMethod copy_method) const {
    kernels::WindowCollectiveCall window_call{};
    window_call.call = call;
    window_call.copy_method = copy_method;
    const auto& memory = collective_ == Collective::kReduceScatter ? plain_in_ : plain_out_;
    for (size_t r = 0; r < memory.size(); ++r) {
      window_call.memory[r] = memory[r].get();
      window_call.bytes[r] = kPool;
    }
    return window_call;
  }

  // Runs `of(rank)` on a thread for each rank, and throws what one of them has thrown.
  template <class Of>
  void on_all(Of of) {
    std::vector<std::exception_ptr> failures(static_cast<size_t>(world_.size()));
    {
      std::vector<std::jthread> threads;
      for (int r = 0; r < world_.size(); ++r)
        threads.emplace_back([&, r] {
          try {
            world_.select(r);
            of(r);
          } catch (...) {
            failures[static_cast<size_t>(r)] = std::current_exception();
          }
        });
    }
    for (const auto& failure : failures)
      if (failure) std::rethrow_exception(failure);
  }

  void prepare(Variant& v) {
    v.graphs.resize(static_cast<size_t>(world_.size()));
    v.times.resize(static_cast<size_t>(world_.size()));
    on_all([&](int rank) {
      const cudaStream_t stream = world_[rank].stream;
      enqueue(v, rank, 0);
      must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      cudaGraph_t graph = nullptr;
      must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
      for (int i = 0; i < launches_; ++i) enqueue(v, rank, static_cast<size_t>(i) % slots_);
      must(cudaStreamEndCapture(stream, &graph), "capture");
      must(cudaGraphInstantiate(&v.graphs[static_cast<size_t>(rank)], graph, 0), "instantiate");
      must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    });
  }

  void time(std::vector<Variant>& variants) {
    std::barrier together(world_.size());
    on_all([&](int rank) {
      const cudaStream_t stream = world_[rank].stream;
      cudaEvent_t begin = nullptr, end = nullptr;
      must(cudaEventCreate(&begin), "cudaEventCreate");
      must(cudaEventCreate(&end), "cudaEventCreate");
      for (int round = 0; round < measuring_.rounds + 2; ++round)
        for (auto& v : variants) {
          const cudaGraphExec_t graph = v.graphs[static_cast<size_t>(rank)];
          if (is_in_place(v)) refill(v, rank, slots_);
          together.arrive_and_wait();
          must(cudaEventRecord(begin, stream), "cudaEventRecord");
          must(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
          must(cudaEventRecord(end, stream), "cudaEventRecord");
          must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
          float ms = 0;
          must(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
          if (round >= 2)
            v.times[static_cast<size_t>(rank)].push_back(double{ms} * 1000 / launches_);
        }
      cudaEventDestroy(begin);
      cudaEventDestroy(end);
    });
    world_.check_alive();
  }

  // The inputs again, where launches have changed them.
  void refill(const Variant& v, int rank, size_t slots) {
    must(cudaMemcpyAsync(output(v, rank, 0), input(v, rank, 0), slots * bytes_, cudaMemcpyDefault,
                         world_[rank].stream),
         "cudaMemcpyAsync");
    must(cudaStreamSynchronize(world_[rank].stream), "cudaStreamSynchronize");
  }

  // Runs each once more into memory that holds something else.
  void verify(const Variant& v) {
    constexpr size_t kMost = 2 << 20;  // elements from either end
    on_all([&](int rank) {
      if (is_in_place(v))
        refill(v, rank, 1);
      else
        must(cudaMemset(output(v, rank, 0), 0xa5, bytes_), "cudaMemset");
      must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      enqueue(v, rank, 0);
      must(cudaStreamSynchronize(world_[rank].stream), "cudaStreamSynchronize");
      if (exchanges()) return verify_messages(v, rank);
      const size_t elements = output_elements(rank), some = std::min(elements, kMost);
      std::vector<uint16_t> got(some);
      for (const size_t from : {size_t{0}, elements - some}) {
        must(
            cudaMemcpy(got.data(), output(v, rank, 0) + from * 2, some * 2, cudaMemcpyDeviceToHost),
            "cudaMemcpy");
        for (size_t i = 0; i < some; ++i)
          if (got[i] != wanted(collective_, world_.size(), rank, count_, from + i))
            throw std::runtime_error(v.name + " of " + std::to_string(bytes_) + " bytes: element " +
                                     std::to_string(from + i) + " is wrong on rank " +
                                     std::to_string(rank));
      }
    });
    world_.check_alive();
  }

  void verify_messages(const Variant& v, int rank) const {
    for (int source = 0; source < world_.size(); ++source) {
      const Part part = traffic_.part(source, rank);
      std::vector<uint16_t> got(part.count);
      must(cudaMemcpy(got.data(), output(v, rank, 0) + part.to * 2, part.count * 2,
                      cudaMemcpyDeviceToHost),
           "cudaMemcpy");
      for (size_t i = 0; i < part.count; ++i)
        if (got[i] != bfloat16(number_at(source, part.from + i)))
          throw std::runtime_error(v.name + " of " + std::to_string(bytes_) + " bytes: element " +
                                   std::to_string(i) + " from rank " + std::to_string(source) +
                                   " is wrong on rank " + std::to_string(rank));
    }
  }

  void print(const std::string& name, const std::vector<Variant>& variants) const {
    std::printf("%-14s %9zu", name.c_str(), bytes_);
    for (const auto& v : variants) {
      std::vector<double> worst = v.times[0];
      for (const auto& times : v.times)
        for (size_t i = 0; i < worst.size(); ++i) worst[i] = std::max(worst[i], times[i]);
      std::ranges::sort(worst);
      const double p50 = worst[worst.size() / 2], p99 = worst[(worst.size() * 99) / 100];
      std::printf("  %s %.2f", v.name.c_str(), p50);
      if (json_ != nullptr)
        std::fprintf(json_,
                     "{\"op\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"variant\": \"%s\", "
                     "\"p50_us\": %.3f, \"p99_us\": %.3f, \"launches\": %d, \"rounds\": %zu, "
                     "\"dtype\": \"bfloat16\", \"mode\": \"graph\"}\n",
                     name.c_str(), bytes_, world_.size(), v.name.c_str(), p50, p99, launches_,
                     worst.size());
    }
    std::printf("\n");
    std::fflush(stdout);
    if (json_ != nullptr) std::fflush(json_);
  }

  const Measuring& measuring_;
  World world_;
  std::unique_ptr<Nccl> nccl_;
  std::vector<DeviceMemory> plain_in_, plain_out_;
  std::vector<char*> window_;
  std::FILE* json_ = nullptr;
  Collective collective_{};
  Traffic traffic_{};
  size_t bytes_ = 0, count_ = 0, slots_ = 1;
  int launches_ = 20;
};

}  // namespace

void measure(const kernels::KernelFunctionTable& library, const Measuring& measuring) {
  Bench bench(library, measuring);
  for (const auto& name : measuring.collectives) {
    const auto found = kCollectives.find(name);
    if (found == kCollectives.end()) throw std::runtime_error("no collective " + name);
    for (size_t bytes = measuring.least_bytes; bytes <= measuring.most_bytes; bytes *= 4)
      bench.run(name, found->second, bytes);
  }
}

}  // namespace native
