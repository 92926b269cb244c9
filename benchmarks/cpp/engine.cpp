// All_reduce of float32 between processes of this host, through the engine: time of a call by size.
//
//   build/dev/bench_engine [ranks [shm|tcp [algorithm [chunk KiB]]]]
//
// Every rank is a process; each call is timed on rank 0, all values are checked after each size.
// One line a size: the fastest call, p50 and p99, in us. On a loaded machine p50 is the load's.

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ctran/engine/group/engine_group.hpp"

namespace {

using namespace torch::comms;         // NOLINT(google-build-using-namespace)
using namespace torch::comms::ctran;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;

constexpr size_t kSizes[] = {8,         64,         1024,    8 * 1024, 32 * 1024,
                             64 * 1024, 256 * 1024, 1 << 20, 4 << 20,  16 << 20};

struct Setting {
  int ranks = 2;
  LinkPolicy links = LinkPolicy::kShm;
  const char* algorithm = nullptr;
  int64_t chunk_kib = -1;
};

[[noreturn]] void stop(const char* why) {
  std::fprintf(stderr, "%s\n", why);
  std::_Exit(1);
}

// The parent hands each child's blob to all.
AllGatherBlobs exchange_over(int socket, int ranks) {
  return [=](std::string mine) {
    if (::send(socket, mine.data(), mine.size(), 0) < 0) stop("the parent has gone");
    std::vector<std::string> all;
    for (int rank = 0; rank < ranks; ++rank) {
      std::string text(64 * 1024, ' ');
      const auto size = ::recv(socket, text.data(), text.size(), 0);
      if (size <= 0) stop("the parent has gone");
      text.resize(static_cast<size_t>(size));
      all.push_back(std::move(text));
    }
    return all;
  };
}

int calls_of(size_t bytes) {
  return static_cast<int>(std::clamp<size_t>((size_t{256} << 20) / (bytes + 64), 60, 20'000));
}

void measure(EngineGroup& group, const Setting& setting, size_t bytes) {
  const auto count = std::max<size_t>(1, bytes / sizeof(float));
  std::vector<float> input(count), output(count);
  const ConstBytes from = std::as_bytes(std::span(input));
  const Bytes into = std::as_writable_bytes(std::span(output));
  for (size_t i = 0; i < count; ++i)
    input[i] = static_cast<float>(i % 97 + static_cast<size_t>(group.rank()));
  EngineCall call{.name = "all_reduce",
                  .operation = schedule::Operation::kAllReduce,
                  .dtype = static_cast<uint8_t>(Dtype::kFloat32),
                  .element_bytes = sizeof(float),
                  .blocks = schedule::Blocks::even(static_cast<int64_t>(count), group.size()),
                  .input = {&from, 1},
                  .output = {&into, 1}};
  if (setting.algorithm != nullptr)
    call.algorithm = schedule::find_algorithm(call.operation, setting.algorithm);
  if (setting.chunk_kib >= 0) call.chunk = setting.chunk_kib * 1024 / 4;
  const int calls = calls_of(bytes);
  std::vector<double> us;
  us.reserve(static_cast<size_t>(calls));
  for (int i = -calls / 5; i < calls; ++i) {
    const auto begin = Clock::now();
    group.run(call);
    const auto end = Clock::now();
    if (i >= 0) us.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  const auto ranks = static_cast<size_t>(group.size());
  for (size_t i = 0; i < count; ++i)
    if (output[i] != static_cast<float>(i % 97 * ranks + ranks * (ranks - 1) / 2))
      stop("wrong values");
  std::sort(us.begin(), us.end());
  if (group.rank() == 0)
    std::printf("%10zu B %10.2f %10.2f %10.2f us\n", bytes, us.front(), us[us.size() / 2],
                us[us.size() * 99 / 100]);
  std::fflush(stdout);
}

void be_rank(const Setting& setting, int rank, int socket, const transport::Secret& job) {
  LinkContextOptions options;
  options.links = setting.links;
  options.interface = "127.0.0.1";
  const auto group = EngineGroup::world(
      LinkContext::create(rank, setting.ranks, job, exchange_over(socket, setting.ranks), options),
      "bench");
  for (const size_t bytes : kSizes) measure(*group, setting, bytes);
}

}  // namespace

int main(int argc, char** argv) {
  Setting setting;
  if (argc > 1) setting.ranks = std::atoi(argv[1]);
  if (argc > 2 && std::string(argv[2]) == "tcp") setting.links = LinkPolicy::kTcp;
  if (argc > 3 && *argv[3] != '\0') setting.algorithm = argv[3];
  if (argc > 4) setting.chunk_kib = std::atoi(argv[4]);
  const auto job = transport::random_secret();
  std::vector<int> sockets;
  for (int rank = 0; rank < setting.ranks; ++rank) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) stop("socketpair");
    if (::fork() == 0) {
      try {
        be_rank(setting, rank, pair[1], job);
      } catch (const std::exception& error) {
        stop(error.what());
      }
      std::_Exit(0);
    }
    ::close(pair[1]);
    sockets.push_back(pair[0]);
  }
  std::vector<std::string> blobs;
  for (const int socket : sockets) {
    std::string text(64 * 1024, ' ');
    text.resize(
        static_cast<size_t>(std::max<ssize_t>(0, ::recv(socket, text.data(), text.size(), 0))));
    blobs.push_back(std::move(text));
  }
  for (const int socket : sockets)
    for (const auto& blob : blobs)
      if (::send(socket, blob.data(), blob.size(), 0) < 0) stop("a rank has gone");
  int failed = 0;
  for (int i = 0; i < setting.ranks; ++i) {
    int status = 0;
    ::wait(&status);
    failed += status != 0;
  }
  return failed == 0 ? 0 : 1;
}
