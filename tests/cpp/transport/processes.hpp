#pragma once

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <list>

#include "transport/world.hpp"

// Ranks of a test, as processes.
namespace torch::comms::transport::test {

inline void write_text(int socket, const std::string& text) {
  if (::send(socket, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) ::_exit(70);
}

inline std::string read_text(int socket) {
  std::string text(kMaxEndpointBytes, ' ');
  const auto size = ::recv(socket, text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

// One child: makes its link, learns the others' endpoints from its parent, and runs.
[[noreturn]] inline void be_rank(const Link& under_test, int rank, int socket, const Secret& job,
                                 const std::function<void(Rank&)>& body) {
  try {
    TransportOptions options;
    options.rank = rank;
    options.size = options.local_ranks = under_test.ranks;
    options.job = job;
    auto link = under_test.make(options);
    write_text(socket, serialize(link->endpoint(), job));
    for (int peer = 0; peer < under_test.ranks; ++peer) {
      const auto endpoint = parse_endpoint(read_text(socket), job);
      if (peer != rank) link->connect(peer, endpoint);
    }
    Rank self{*link, rank, under_test.ranks};
    body(self);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    ::_exit(1);
  }
  ::_exit(0);
}

// How each rank's process ended, as waitpid() says.
inline std::vector<int> run_processes(const Link& under_test,
                                      const std::function<void(Rank&)>& body) {
  const Secret job = random_secret();
  std::vector<int> sockets, status;
  std::vector<pid_t> children;
  for (int rank = 0; rank < under_test.ranks; ++rank) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    children.push_back(::fork());
    if (children.back() == 0) {
      for (const int other : sockets) ::close(other);
      ::close(pair[0]);
      be_rank(under_test, rank, pair[1], job, body);
    }
    ::close(pair[1]);
    sockets.push_back(pair[0]);
  }
  std::vector<std::string> endpoints;
  for (const int socket : sockets) endpoints.push_back(read_text(socket));
  for (const int socket : sockets)
    for (const auto& endpoint : endpoints) write_text(socket, endpoint);
  for (const pid_t child : children) {
    status.push_back(-1);
    ::waitpid(child, &status.back(), 0);
  }
  for (const int socket : sockets) ::close(socket);
  return status;
}

// The last rank is killed after `messages` of its messages. Throws what is wrong.
inline void check_survivor(Rank& self, int messages) {
  const int killed_rank = self.size - 1;
  if (self.rank == killed_rank) {
    std::list<std::vector<std::byte>> memory;
    std::list<Request> requests;
    for (int i = 0; i < messages; ++i)
      for (int peer = 0; peer < killed_rank; ++peer) {
        const size_t size = i % 5 == 4 ? 500'000 : 64;
        const auto& bytes =
            memory.emplace_back(pattern(killed_rank, peer, static_cast<uint64_t>(i), size));
        auto& request = requests.emplace_back();
        self.link.send(request, peer, 1, bytes);
        self.wait(request);
      }
    ::kill(::getpid(), SIGKILL);
  }
  const auto require = [](bool right, const char* what) {
    if (!right) throw std::runtime_error(what);
  };
  for (int i = 0;; ++i) {
    const size_t size = i % 5 == 4 ? 500'000 : 64;
    std::vector<std::byte> bytes(size);
    Request request;
    self.link.receive(request, killed_rank, 1, bytes);
    // Not by a timeout: an end is seen within a second.
    const auto limit = i == 0 ? kLong : seconds(1);
    require(self.link.wait(request, in(limit)) == WaitResult::kDone, "the end was not seen in 1 s");
    if (request.is_ok()) {
      require(bytes == pattern(killed_rank, self.rank, static_cast<uint64_t>(i), size),
              "wrong data");
      continue;
    }
    require(request.error() == Errc::kPeerFailed, "not kPeerFailed");
    const auto error = self.link.error(request, "receive");
    require(error.context().peer == killed_rank, "the wrong rank is named");
    require(i >= messages - 1, "messages that were sent are lost");
    break;
  }
  Rank survivors{self.link, self.rank, killed_rank};
  for (int round = 0; round < 5; ++round) survivors.barrier();
}

inline void expect_survival(const Link& under_test) {
  for (const int messages : {1, 2, 7, 23}) {
    const auto status =
        run_processes(under_test, [&](Rank& self) { check_survivor(self, messages); });
    for (size_t rank = 0; rank + 1 < status.size(); ++rank)
      EXPECT_TRUE(WIFEXITED(status[rank]) && WEXITSTATUS(status[rank]) == 0)
          << "rank " << rank << " after " << messages << " messages";
    EXPECT_TRUE(WIFSIGNALED(status.back()));
  }
}

// Ordinary traffic between processes: messages, puts into each other's memory, counters.
inline void exchange_in_processes(Rank& self) {
  auto memory = self.link.allocate(4096);
  for (const int peer : self.peers()) {
    Request out, back;
    std::string mine = serialize(memory->handle()), theirs(kMemoryHandleBytes, ' ');
    self.link.receive(back, peer, 1, std::as_writable_bytes(std::span(theirs)));
    self.link.send(out, peer, 1, std::as_bytes(std::span(mine)));
    self.wait(out);
    self.wait(back);
    const auto remote = self.link.import(parse_memory_handle(theirs));
    const auto bytes = pattern(self.rank, peer, 5, 1000);
    Request put;
    self.link.put(put, *remote, 2048, bytes);
    self.link.signal(*remote, 0, 1, CounterOp::kAdd);
    Transport* links[] = {&self.link};
    const auto seen =
        wait_until(links, self.link.abort_signal(), in(kLong), self.link.wait_policy(),
                   [&] { return read_counter(*memory, 0) >= 1; });
    self.wait(put);
    const auto want = pattern(peer, self.rank, 5, 1000);
    if (seen != WaitResult::kDone ||
        !std::equal(want.begin(), want.end(), memory->bytes().begin() + 2048))
      throw std::runtime_error("what was put is not there");
  }
  self.barrier();
}

}  // namespace torch::comms::transport::test
