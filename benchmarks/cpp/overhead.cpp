// What an operation costs beside the communication: its two records in the event ring, in memory
// and in files, and TorchComm's path with and without hooks, over a backend that does nothing.
//   build/dev/bench_overhead [folder for a further file]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <torchcomms/comm.hpp>
#include <torchcomms/factory.hpp>

#include "core/comm/dispatch.hpp"
#include "core/observe/operation_record.hpp"
#include "tracing/recorder.hpp"
#include "tracing/ring_file.hpp"

namespace {

using namespace torch::comms;
using Clock = std::chrono::steady_clock;

constexpr int kCalls = 1000;  // a block: a call is near the clock's resolution
constexpr int kBlocks = 1000;

struct Variant {
  std::string name;
  std::function<void()> block;
  std::vector<double> ns = {};  // of a call, in each block
};

// The ways take turns, block by block.
void measure(std::list<Variant>& variants) {
  for (int round = -kBlocks / 10; round < kBlocks; ++round)
    for (auto& variant : variants) {
      const auto begin = Clock::now();
      variant.block();
      const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
      if (round >= 0) variant.ns.push_back(took.count() / kCalls);
    }
  std::printf("%-52s %8s %8s\n", "what", "p50 ns", "p99 ns");
  for (auto& variant : variants) {
    std::ranges::sort(variant.ns);
    std::printf("%-52s %8.1f %8.1f\n", variant.name.c_str(), variant.ns[kBlocks / 2],
                variant.ns[kBlocks * 99 / 100]);
  }
}

template <class Call>
std::function<void()> block_of(Call call) {
  return [call]() mutable {
    for (int i = 0; i < kCalls; ++i) call();
  };
}

struct RingInFile {
  RingInFile(const std::string& folder, const std::string& name)
      : file(tracing::create_ring_file(folder, "overhead", name, ring.size_bytes())) {
    ring.move_to(file.bytes.data());
    tracing::publish(file);
  }
  ~RingInFile() { tracing::remove_file(file.path); }
  RingInFile(const RingInFile&) = delete;
  RingInFile& operator=(const RingInFile&) = delete;

  tracing::EventRing ring{8192};
  tracing::OwnedRingFile file;
};

// As TorchComm records a synchronous operation.
std::function<void()> records(tracing::EventRing& ring) {
  base::OpRecord op;
  op.comm = ring.add_communicator({.name = "world", .rank = 0, .size = 1, .members = {0}});
  return block_of([&ring, op]() mutable {
    ++op.matching_sequence;
    for (const auto phase : {tracing::EventPhase::kBegin, tracing::EventPhase::kEnd})
      ring.record({.time_ns = tracing::now_ns(),
                   .thread = tracing::kernel_thread_id(),
                   .phase = phase,
                   .op = op});
  });
}

std::shared_ptr<TorchComm> comm_of(const std::string& name) {
  return new_comm("fake", at::Device(at::kCPU), name);
}

}  // namespace

int main(int argc, char** argv) {
  ::setenv("TORCHCOMM_RANK", "0", 1);
  ::setenv("TORCHCOMM_SIZE", "1", 1);
  const auto tensor = at::zeros({2});
  auto data = tensor;
  const ReduceOp sum = ReduceOp::SUM;
  const auto all_reduce = [&](const std::shared_ptr<TorchComm>& comm) {
    return block_of([comm = comm.get(), &data, &sum] { comm->all_reduce(data, sum, false); });
  };

  tracing::EventRing in_memory(8192);
  std::list<RingInFile> files;
  std::list<Variant> variants;
  variants.push_back({"begin and end, ring in memory", records(in_memory)});
  std::vector<std::string> folders = tracing::recorder_directories();
  folders.resize(std::min<size_t>(folders.size(), 1));
  if (argc > 1) folders.emplace_back(argv[1]);
  for (const auto& folder : folders) {
    files.emplace_back(folder, "ring" + std::to_string(files.size()) + tracing::kFileSuffix);
    variants.push_back({"begin and end, ring in " + folder, records(files.back().ring)});
  }

  const auto plain = comm_of("plain");
  const auto removed = comm_of("removed");
  const auto hooked = comm_of("hooked");
  const auto pre = [](size_t, const PreHookArgs&) {};
  const auto post = [](size_t, const PostHookArgs&) {};
  for (const auto& comm : {removed, hooked}) {
    auto before = comm->registerPreHook(pre);
    auto after = comm->registerPostHook(post);
    if (comm != removed) continue;
    before->remove();
    after->remove();
  }
  TorchCommBackend& backend = *plain->getBackendImpl();
  const AllReduceOptions options;
  variants.push_back({"all_reduce of the backend alone",
                      block_of([&] { backend.all_reduce(data, sum, false, options); })});
  variants.push_back({"all_reduce of a communicator without hooks", all_reduce(plain)});
  variants.push_back({"... whose hooks were removed", all_reduce(removed)});
  variants.push_back({"... with a pre-hook and a post-hook that do nothing", all_reduce(hooked)});
  measure(variants);
  for (const auto& comm : {plain, removed, hooked}) comm->finalize();
  return 0;
}
