// Ping-pong latency and one-way bandwidth of the host links, between two processes of this host.
// Every message is checked.
//   build/dev/bench_link_latency [shm|tcp]

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <string>
#include <vector>

#include "transport/shm/shm_transport.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace {

using namespace torch::comms;
using namespace torch::comms::transport;
using Clock = std::chrono::steady_clock;

constexpr size_t kSizes[] = {8,         64,         1024,    4096,    16 * 1024,
                             64 * 1024, 256 * 1024, 1 << 20, 4 << 20, 16 << 20};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::_Exit(1);
}

struct End {
  Transport& link;
  int peer;
  void wait(const Request& request) {
    if (link.wait(request, Clock::now() + std::chrono::seconds(60)) != WaitResult::kDone)
      fail("a wait took over a minute");
    if (!request.is_ok()) fail(link.error(request, "benchmark").what());
  }
  void send(ConstBytes bytes) {
    Request request;
    link.send(request, peer, 1, bytes);
    wait(request);
  }
  void receive(Bytes bytes) {
    Request request;
    link.receive(request, peer, 1, bytes);
    wait(request);
  }
};

// Different in every round, in every cache line.
void fill(std::vector<std::byte>& bytes, uint64_t round) {
  for (size_t i = 0; i + 8 <= bytes.size(); i += 64) {
    const uint64_t word = round * 1'000'003 + i;
    std::memcpy(bytes.data() + i, &word, 8);
  }
}

void check(const std::vector<std::byte>& bytes, uint64_t round) {
  for (size_t i = 0; i + 8 <= bytes.size(); i += 64) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if (word != round * 1'000'003 + i) fail("wrong data");
  }
}

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Filling and checking is not timed. Rank 0 times; half of a round trip counts.
std::vector<double> ping_pong(End& end, int rank, size_t size, int rounds) {
  std::vector<std::byte> out(size), back(size);
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto number = static_cast<uint64_t>(round);
    fill(out, number);
    Request receive;
    end.link.receive(receive, end.peer, 1, Bytes(back));
    if (rank == 0) {
      const auto start = Clock::now();
      end.send(out);
      end.wait(receive);
      times.push_back(microseconds(Clock::now() - start) / 2);
    } else {
      end.wait(receive);
      end.send(out);
    }
    check(back, number);
  }
  return times;
}

// GB/s (1e9) from rank 0 to rank 1, with up to eight messages on the way.
double stream(End& end, int rank, size_t size, int rounds) {
  constexpr int kWindow = 8;
  std::list<std::vector<std::byte>> buffers;
  std::vector<Request> requests(kWindow);
  for (int i = 0; i < kWindow; ++i) fill(buffers.emplace_back(size), 5);
  std::byte token[1] = {};
  end.send(ConstBytes(token, 0));
  end.receive(Bytes(token, 0));
  const auto start = Clock::now();
  auto buffer = buffers.begin();
  for (int round = 0; round < rounds + kWindow; ++round) {
    auto& request = requests[static_cast<size_t>(round % kWindow)];
    if (round >= kWindow) end.wait(request);
    if (round < rounds) {
      if (rank == 0)
        end.link.send(request, end.peer, 2, ConstBytes(*buffer));
      else
        end.link.receive(request, end.peer, 2, Bytes(*buffer));
    }
    if (++buffer == buffers.end()) buffer = buffers.begin();
  }
  if (rank == 1) end.send(ConstBytes(token, 1));
  if (rank == 0) end.receive(Bytes(token, 1));
  const double seconds = microseconds(Clock::now() - start) / 1e6;
  if (rank == 1)
    for (const auto& bytes : buffers) check(bytes, 5);
  return static_cast<double>(size) * rounds / seconds / 1e9;
}

void run(End& end, int rank) {
  if (rank == 0) std::printf("%10s %12s %12s %12s\n", "bytes", "p50 us", "p99 us", "GB/s");
  for (const size_t size : kSizes) {
    const int rounds = size <= 4096          ? 20000
                       : size <= (256 << 10) ? 2000
                       : size <= (1 << 20)   ? 300
                                             : 40;
    ping_pong(end, rank, size, std::max(20, rounds / 10));
    auto times = ping_pong(end, rank, size, rounds);
    const double bandwidth = stream(end, rank, size, rounds);
    if (rank != 0) continue;
    std::sort(times.begin(), times.end());
    std::printf("%10zu %12.2f %12.2f %12.2f\n", size, times[times.size() / 2],
                times[times.size() * 99 / 100], bandwidth);
    std::fflush(stdout);
  }
}

std::string swap_endpoints(int socket, const std::string& mine) {
  std::string theirs(kMaxEndpointBytes, ' ');
  if (::send(socket, mine.data(), mine.size(), 0) < 0) fail("no parent");
  const auto size = ::recv(socket, theirs.data(), theirs.size(), 0);
  if (size <= 0) fail("no peer");
  theirs.resize(static_cast<size_t>(size));
  return theirs;
}

void be_rank(const std::string& name, int rank, int socket, const Secret& job) {
  TransportOptions options;
  options.rank = rank;
  options.size = options.local_ranks = 2;
  options.job = job;
  std::unique_ptr<Transport> link;
  if (name == "shm") {
    link = shm::make_shm_transport(shm::ShmOptions{options});
  } else {
    tcp::TcpOptions tcp{options};
    tcp.interface = "127.0.0.1";
    link = tcp::make_tcp_transport(tcp);
  }
  const auto peer = parse_endpoint(swap_endpoints(socket, serialize(link->endpoint(), job)), job);
  link->connect(1 - rank, peer);
  End end{*link, 1 - rank};
  if (rank == 0) std::printf("%s\n", name.c_str());
  run(end, rank);
  std::byte nothing[1];
  end.send(ConstBytes(nothing, 0));
  end.receive(Bytes(nothing, 0));
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string name : {"shm", "tcp"}) {
    if (argc > 1 && name != argv[1]) continue;
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) fail("socketpair");
    const Secret job = random_secret();
    const pid_t child = ::fork();
    be_rank(name, child == 0 ? 1 : 0, pair[child == 0 ? 1 : 0], job);
    std::fflush(stdout);
    if (child == 0) std::_Exit(0);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) return 1;
    ::close(pair[0]);
    ::close(pair[1]);
  }
  return 0;
}
