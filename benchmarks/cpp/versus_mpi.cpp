// The engine beside an MPI library: both in the same processes, in turns, values checked.
//
//     mpirun.openmpi -n 4 --oversubscribe build/dev/bench_versus_mpi_openmpi [OPTIONS]
//     mpirun.mpich -n 4 build/dev/bench_versus_mpi_mpich [OPTIONS]
//
// Options: [--op all_reduce] [--bytes 8,1024,65536]
//         [--seconds 0.3] [--links auto|shm|tcp] [--memory own|window|shared]
//         [--threads single|multiple] [--algorithm NAME] [--chunk BYTES] [--json FILE]
//
// Both sides use the same memory: the process's own; with --memory window that of a window; or with
// --memory shared where share_cpu_tensors() has tensors lie. Ranks of one host read the latter two
// where they are.
//
// The engine may be called by any thread. An MPI library may be so only where its MPI_Init_thread
// was asked for MPI_THREAD_MULTIPLE: --threads multiple does. Without, it need not lock anything.
//
// Where an operation only copies, a third side takes its turns: the copies alone, each by the rank
// that needs the data, with the system's copy between processes, and a barrier after all of them.
// Without it one rank's copies would follow each other in its slice of a shared core, with all of
// them in its cache, which took a third of the time that they have in turns. From 1 MB on, nothing
// that copies this way is much faster.
//
// A sample is the slowest rank's time of one call; where a side's calls take less than 10 us the
// mean of a few in a row, up to 32 and as many of each side: two ranks that run one behind the
// other in turns would count as the slower one each time, and of a call that finds its message
// there most of the times the median would say nothing of those that wait for it. One line a point:
// medians, 99th percentiles, and how many times as long MPI takes (above 1: the engine is faster).

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctran/engine/group/engine_group.hpp"
#include "ctran/selection/algorithm_selection.hpp"
#include "ctran/window/window.hpp"
#include "transport/shm/shared_arena.hpp"

namespace {

using namespace torch::comms;
using namespace torch::comms::ctran;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 20;

struct Settings {
  std::string op;                                                          // empty: all
  std::vector<size_t> sizes{8, 1u << 10, 64u << 10, 1u << 20, 16u << 20};  // bytes
  double seconds = 0.3;                                                    // a point and side
  LinkPolicy links = LinkPolicy::kAuto;
  std::string memory = "own";
  bool threads = false;   // MPI_THREAD_MULTIPLE: calls from any thread, as the engine always allows
  std::string algorithm;  // of the operations that have it; empty: the chooser's
  int64_t chunk_bytes = -1;
  std::string json;
};

struct Memory {
  int process;
  uint64_t input, output;  // addresses there
};

struct World {
  int rank, size;
  EngineGroup& group;
  Bytes memory;  // of the inputs, then of the outputs
  std::span<float> input, output;
  std::vector<float> expected;
  std::vector<Memory> memory_of_ranks = {};

  void set_spans(size_t in, size_t out) {
    const auto half = memory.size() / 2;
    if (std::max(in, out) * sizeof(float) > half) throw std::length_error("too little memory");
    input = {reinterpret_cast<float*>(memory.data()), in};
    output = {reinterpret_cast<float*>(memory.data() + half), out};
    const Memory mine{::getpid(), reinterpret_cast<uint64_t>(input.data()),
                      reinterpret_cast<uint64_t>(output.data())};
    memory_of_ranks.resize(static_cast<size_t>(size));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, memory_of_ranks.data(), sizeof mine, MPI_BYTE,
                  MPI_COMM_WORLD);
  }
};

Bytes shared_memory(size_t bytes) {
  void* const at = transport::shm::SharedArena::open().allocate(bytes);
  if (at == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(at), bytes};
}

// In a file of its own, so that it can be a window's.
Bytes map_memory(size_t bytes) {
  const int file = ::memfd_create("benchmark", MFD_CLOEXEC);
  void* at = MAP_FAILED;
  if (file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0)
    at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<std::byte*>(at), bytes};  // the file stays open: peers map it from there
}

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

// An operation both sides have. `bytes` is the larger side of the data.
struct Operation {
  const char* name;
  // Elements of input and output of one rank, for `count` elements of the larger side.
  std::function<std::array<size_t, 2>(const World&, size_t count)> shape;
  std::function<void(World&, size_t count)> mpi;
  std::function<EngineCall(World&, size_t count)> call;
  std::function<void(World&, size_t count)> copies = nullptr;  // where it only copies
};

// `count` elements at that address of a rank; its own by memcpy.
void copy_from(const World& w, int rank, uint64_t address, float* into, size_t count) {
  const size_t bytes = count * sizeof(float);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  auto* const there = reinterpret_cast<void*>(address);
  if (rank == w.rank) {
    std::memcpy(into, there, bytes);
    return;
  }
  const iovec mine{into, bytes}, theirs{there, bytes};
  const auto process = w.memory_of_ranks[static_cast<size_t>(rank)].process;
  if (::process_vm_readv(process, &mine, 1, &theirs, 1, 0) != static_cast<ssize_t>(bytes))
    fail("the system copies nothing between processes");
}

// Part `mine` of each rank's input, the next rank's first; `each` elements.
void copy_parts(const World& w, size_t mine, size_t each) {
  for (int i = 0; i < w.size; ++i) {
    const int from = (w.rank + i) % w.size;
    const auto index = static_cast<size_t>(from);
    copy_from(w, from, w.memory_of_ranks[index].input + mine * each * sizeof(float),
              w.output.data() + index * each, each);
  }
}

int as_int(size_t value) { return static_cast<int>(value); }

EngineCall base_call(const char* name, schedule::Operation operation) {
  EngineCall call;
  call.name = name;
  call.operation = operation;
  call.dtype = static_cast<uint8_t>(Dtype::kFloat32);
  call.element_bytes = 4;
  return call;
}

std::vector<Operation> operations() {
  using schedule::Blocks;
  const auto share = [](const World& w, size_t count) {
    return count / static_cast<size_t>(w.size);
  };
  const auto even = [](const World& w, size_t count) {
    return Blocks::even(static_cast<int64_t>(count), w.size);
  };
  std::vector<Operation> all;
  all.push_back({"all_reduce", [](const World&, size_t n) { return std::array{n, n}; },
                 [](World& w, size_t n) {
                   MPI_Allreduce(w.input.data(), w.output.data(), as_int(n), MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
                 },
                 [even](World& w, size_t n) {
                   auto call = base_call("all_reduce", schedule::Operation::kAllReduce);
                   call.blocks = even(w, n);
                   return call;
                 }});
  all.push_back({"all_gather",
                 [share](const World& w, size_t n) { return std::array{share(w, n), n}; },
                 [share](World& w, size_t n) {
                   const int each = as_int(share(w, n));
                   MPI_Allgather(w.input.data(), each, MPI_FLOAT, w.output.data(), each, MPI_FLOAT,
                                 MPI_COMM_WORLD);
                 },
                 [even](World& w, size_t n) {
                   auto call = base_call("all_gather", schedule::Operation::kAllGather);
                   call.blocks = even(w, n);
                   return call;
                 },
                 [share](World& w, size_t n) { copy_parts(w, 0, share(w, n)); }});
  all.push_back({"reduce_scatter",
                 [share](const World& w, size_t n) { return std::array{n, share(w, n)}; },
                 [share](World& w, size_t n) {
                   MPI_Reduce_scatter_block(w.input.data(), w.output.data(), as_int(share(w, n)),
                                            MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                 },
                 [even](World& w, size_t n) {
                   auto call = base_call("reduce_scatter", schedule::Operation::kReduceScatter);
                   call.blocks = even(w, n);
                   return call;
                 }});
  all.push_back(
      {"all_to_all", [](const World&, size_t n) { return std::array{n, n}; },
       [share](World& w, size_t n) {
         const int each = as_int(share(w, n));
         MPI_Alltoall(w.input.data(), each, MPI_FLOAT, w.output.data(), each, MPI_FLOAT,
                      MPI_COMM_WORLD);
       },
       [even](World& w, size_t n) {
         auto call = base_call("all_to_all", schedule::Operation::kAllToAll);
         call.blocks = call.arriving = even(w, n);
         return call;
       },
       [share](World& w, size_t n) { copy_parts(w, static_cast<size_t>(w.rank), share(w, n)); }});
  all.push_back({"broadcast", [](const World&, size_t n) { return std::array{size_t{0}, n}; },
                 [](World& w, size_t n) {
                   MPI_Bcast(w.output.data(), as_int(n), MPI_FLOAT, 0, MPI_COMM_WORLD);
                 },
                 [even](World& w, size_t n) {
                   auto call = base_call("broadcast", schedule::Operation::kBroadcast);
                   call.blocks = even(w, n);
                   return call;
                 },
                 [](World& w, size_t n) {
                   if (w.rank != 0)
                     copy_from(w, 0, w.memory_of_ranks[0].output, w.output.data(), n);
                 }});
  all.push_back({"barrier", [](const World&, size_t) { return std::array{size_t{0}, size_t{0}}; },
                 [](World&, size_t) { MPI_Barrier(MPI_COMM_WORLD); },
                 [even](World& w, size_t) {
                   auto call = base_call("barrier", schedule::Operation::kBarrier);
                   call.blocks = even(w, 0);
                   return call;
                 }});
  return all;
}

float sample(int rank, size_t i) { return static_cast<float>((i * 7 + size_t(rank) * 13) % 31); }

// What both sides start a turn from. Repeating an operation changes nothing, so every call of a
// turn must leave the same values.
void prepare(const std::string& op, World& w, size_t count) {
  for (size_t i = 0; i < w.input.size(); ++i) w.input[i] = sample(w.rank, i);
  std::fill(w.output.begin(), w.output.end(), -1.0f);
  const size_t each = count / static_cast<size_t>(w.size);
  w.expected.assign(w.output.size(), 0.0f);
  const auto rank = static_cast<size_t>(w.rank);
  for (size_t i = 0; i < w.output.size(); ++i) {
    if (op == "all_reduce") {
      for (int r = 0; r < w.size; ++r) w.expected[i] += sample(r, i);
    } else if (op == "all_gather") {
      w.expected[i] = sample(static_cast<int>(i / each), i % each);
    } else if (op == "reduce_scatter") {
      for (int r = 0; r < w.size; ++r) w.expected[i] += sample(r, rank * each + i);
    } else if (op == "all_to_all") {
      w.expected[i] = sample(static_cast<int>(i / each), rank * each + i % each);
    } else if (op == "broadcast") {
      w.expected[i] = sample(0, i);
      if (w.rank == 0) w.output[i] = w.expected[i];
    }
  }
}

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Of each call, the slowest rank's time. Empty on other ranks than 0.
std::vector<double> slowest(const World& w, std::vector<double>& mine) {
  std::vector<double> worst(mine.size());
  MPI_Reduce(mine.data(), worst.data(), as_int(mine.size()), MPI_DOUBLE, MPI_MAX, 0,
             MPI_COMM_WORLD);
  if (w.rank != 0) worst.clear();
  return worst;
}

double percentile(std::vector<double>& times, double part) {
  const auto at =
      times.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

struct Turn {
  int samples, calls;  // a turn; a sample
};

// Microseconds of a call, the slowest rank's mean of many. The same on all ranks.
double mean_of_calls(const std::function<void()>& once) {
  constexpr int kWarm = 3, kFirst = 5, kMost = 500;
  constexpr double kLong_us = 20'000;
  for (int i = 0; i < kWarm; ++i) once();
  const auto timed = [&](int calls) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) once();
    double each_us = microseconds(Clock::now() - begin) / calls;
    MPI_Allreduce(MPI_IN_PLACE, &each_us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return std::max(each_us, 0.01);
  };
  const double first_us = timed(kFirst);
  return timed(std::clamp(static_cast<int>(kLong_us / first_us), kFirst, kMost));
}

// Samples of all sides are of as many calls, so that their medians are of the same; each side takes
// about `seconds` in all.
std::vector<Turn> turns_of(const Settings& settings, std::span<const double> means_us) {
  constexpr double kSample_us = 10;
  const double fastest_us = std::ranges::min(means_us);
  const int calls = static_cast<int>(std::clamp(kSample_us / fastest_us, 1.0, 32.0));
  std::vector<Turn> turns;
  for (const double each_us : means_us) {
    const double samples = settings.seconds * 1e6 / kRounds / each_us / calls;
    turns.push_back({static_cast<int>(std::clamp(samples, 2.0, 5000.0)), calls});
  }
  return turns;
}

// "OpenOperation MPI v4.1.4" or "MPICH v4.0.2". Open MPI says "OpenOperation MPI v4.1.4, package:
// ...", MPICH in a line "MPICH Version:      4.0.2".
std::string mpi_name() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version;
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  const std::string text(version.data());
  const std::string first = text.substr(0, text.find_first_of(",\n"));
  const std::string word = " Version:";
  const auto at = first.find(word);
  if (at == std::string::npos) return first;
  const auto number = first.find_first_not_of(" \t", at + word.size());
  return first.substr(0, at) + " v" + first.substr(std::min(number, first.size()));
}

void measure(const Settings& settings, World& w, const Operation& operation, size_t bytes,
             std::ofstream& json) {
  const size_t count = bytes / sizeof(float);
  const auto [in, out] = operation.shape(w, count);
  w.set_spans(std::max(in, count), out);
  const std::string op = operation.name;
  prepare(op, w, count);

  const std::array input{ConstBytes(std::as_bytes(std::span(w.input.data(), in)))};
  const std::array output{Bytes(std::as_writable_bytes(std::span(w.output)))};
  EngineCall call = operation.call(w, count);
  call.timeout = std::chrono::seconds(60);
  call.input = input;
  call.output = output;
  struct Side {
    std::string name;
    std::function<void()> once;
    Turn turn = {};
    std::vector<double> times = {};  // of this rank; then, on rank 0, of the slowest
  };
  std::vector<Side> sides;
  sides.push_back({"ctran", [&] { w.group.run(call); }});
  sides.push_back(
      {mpi_name() + (settings.threads ? ", threads" : ""), [&] { operation.mpi(w, count); }});
  if (operation.copies && settings.memory == "own")
    sides.push_back({"copies", [&] {
                       operation.copies(w, count);
                       MPI_Barrier(MPI_COMM_WORLD);
                     }});
  std::vector<double> means_us;
  for (const auto& side : sides) means_us.push_back(mean_of_calls(side.once));
  const auto turns = turns_of(settings, means_us);
  for (size_t i = 0; i < sides.size(); ++i) sides[i].turn = turns[i];
  for (size_t round = 0; round < kRounds; ++round)
    for (size_t turn = 0; turn < sides.size(); ++turn) {
      auto& side = sides[(turn + round) % sides.size()];
      prepare(op, w, count);
      MPI_Barrier(MPI_COMM_WORLD);
      for (int i = 0; i < side.turn.samples; ++i) {
        const auto begin = Clock::now();
        for (int call = 0; call < side.turn.calls; ++call) side.once();
        side.times.push_back(microseconds(Clock::now() - begin) / side.turn.calls);
      }
      MPI_Barrier(MPI_COMM_WORLD);
      if (!std::ranges::equal(w.output, w.expected)) fail(op + ": wrong values from " + side.name);
    }
  for (auto& side : sides) side.times = slowest(w, side.times);
  if (w.rank != 0) return;
  struct Point {
    double p50, p99;
  };
  std::vector<Point> points;
  for (auto& side : sides)
    points.push_back({percentile(side.times, 0.5), percentile(side.times, 0.99)});
  std::printf("%-15s %2d ranks %9zu B   engine %9.2f / %9.2f us   %s %9.2f / %9.2f us   %6.2fx",
              operation.name, w.size, bytes, points[0].p50, points[0].p99, sides[1].name.c_str(),
              points[1].p50, points[1].p99, points[1].p50 / points[0].p50);
  if (points.size() > 2)
    std::printf("   copies alone %9.2f us, %6.2fx", points[2].p50, points[1].p50 / points[2].p50);
  std::printf("\n");
  std::fflush(stdout);
  if (!json.is_open()) return;
  for (size_t i = 0; i < sides.size(); ++i)
    json << "{\"op\": \"" << op << "\", \"backend\": \"" << sides[i].name
         << "\", \"algorithm\": \"default\", \"mode\": \"eager\", \"memory\": \"" << settings.memory
         << "\", \"bytes\": " << bytes << ", \"dtype\": \"float32\", \"ranks\": " << w.size
         << ", \"p50_us\": " << points[i].p50 << ", \"p99_us\": " << points[i].p99 << "}\n";
}

std::vector<size_t> sizes_of(const std::string& list) {
  std::vector<size_t> sizes;
  std::istringstream fields(list);
  for (std::string field; std::getline(fields, field, ',');) sizes.push_back(std::stoull(field));
  if (sizes.empty()) fail("--bytes lacks its sizes");
  return sizes;
}

Settings settings_of(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--op")
      settings.op = value;
    else if (name == "--bytes")
      settings.sizes = sizes_of(value);
    else if (name == "--seconds")
      settings.seconds = std::stod(value);
    else if (name == "--memory" && (value == "own" || value == "window" || value == "shared"))
      settings.memory = value;
    else if (name == "--threads" && (value == "single" || value == "multiple"))
      settings.threads = value == "multiple";
    else if (name == "--algorithm")
      settings.algorithm = value;
    else if (name == "--chunk")
      settings.chunk_bytes = std::stoll(value);
    else if (name == "--json")
      settings.json = value;
    else if (name == "--links" && value == "shm")
      settings.links = LinkPolicy::kShm;
    else if (name == "--links" && value == "tcp")
      settings.links = LinkPolicy::kTcp;
    else if (name != "--links" || value != "auto")
      fail("unknown option " + name + " " + value);
  }
  if (argc % 2 == 0) fail("an option lacks its value");
  return settings;
}

std::vector<std::string> exchange_by_mpi(const std::string& mine, int size) {
  constexpr int kMost = 8192;
  if (mine.size() + sizeof(uint32_t) > kMost) fail("the blob is too large");
  std::vector<char> sent(kMost), all(static_cast<size_t>(kMost) * static_cast<size_t>(size));
  const auto length = static_cast<uint32_t>(mine.size());
  std::memcpy(sent.data(), &length, sizeof length);
  std::memcpy(sent.data() + sizeof length, mine.data(), mine.size());
  MPI_Allgather(sent.data(), kMost, MPI_CHAR, all.data(), kMost, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> blobs;
  for (int r = 0; r < size; ++r) {
    const char* at = all.data() + static_cast<size_t>(r) * kMost;
    uint32_t count = 0;
    std::memcpy(&count, at, sizeof count);
    blobs.emplace_back(at + sizeof count, count);
  }
  return blobs;
}

void run(const Settings& settings) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  transport::Secret job = transport::random_secret();
  MPI_Bcast(job.data(), as_int(job.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  LinkContextOptions options;
  options.links = settings.links;
  if (settings.memory == "shared") transport::shm::SharedArena::open();  // before there are links
  // As backend `ctran` chooses without a tuning file.
  const auto facts = std::make_shared<TopologyFacts>();
  facts->link = settings.links == LinkPolicy::kTcp ? LinkType::kTcp : LinkType::kShm;
  options.chooser = [facts, settings](const ProblemInfo& problem_info) {
    const auto element =
        ElementSizes::of(problem_info.element_bytes, problem_info.has_wide_accumulator);
    AlgorithmRequest request;
    if (schedule::find_algorithm(problem_info.problem.operation, settings.algorithm) != nullptr)
      request = {settings.algorithm, settings.chunk_bytes};
    const auto selected =
        select_algorithm(problem_info.problem, element, *facts, Tuning{}, request);
    return AlgorithmChoice{selected.algorithm, selected.chunk};
  };
  const auto link_context = LinkContext::create(
      rank, size, job, [&](const std::string& mine) { return exchange_by_mpi(mine, size); },
      options);
  const auto host_cores = link_context->most_oversubscribed_host();
  if (host_cores.ranks > host_cores.cores.count()) {
    facts->local_ranks = host_cores.ranks;
    facts->cores = host_cores.cores.count();
  }
  const auto group = EngineGroup::world(link_context, "benchmark");
  const size_t bytes = 2 * std::max<size_t>(std::ranges::max(settings.sizes), 4096);
  const bool in_window = settings.memory == "window";
  std::vector<std::byte> own(settings.memory == "own" ? bytes : 0);
  const Bytes memory = in_window                     ? map_memory(bytes)
                       : settings.memory == "shared" ? shared_memory(bytes)
                                                     : Bytes(own);
  World world{rank, size, *group, memory, {}, {}, {}};
  std::unique_ptr<Window> window;
  if (in_window) window = Window::create(*group, {.memory = world.memory}, "benchmark");
  std::ofstream json;
  if (rank == 0 && !settings.json.empty()) json.open(settings.json, std::ios::app);
  for (const auto& operation : operations()) {
    if (!settings.op.empty() && settings.op != operation.name) continue;
    if (std::string(operation.name) == "barrier") {
      measure(settings, world, operation, 0, json);
      continue;
    }
    const size_t least = std::max<size_t>(8, sizeof(float) * static_cast<size_t>(size));
    for (const size_t bytes : settings.sizes)
      measure(settings, world, operation, std::max(bytes, least), json);
  }
  if (window) window->close(*group, "benchmark");
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto settings = settings_of(argc, argv);
    const int wanted = settings.threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    int provided = 0;
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    if (provided < wanted) fail("this MPI library cannot be called by several threads");
    run(settings);
  } catch (const std::exception& e) {
    fail(e.what());
  }
  MPI_Finalize();
  return 0;
}
