#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "transport/nvl/symmetric_memory.hpp"

// Groups of ranks for tests: threads of this process, or processes forked from it.
namespace torch::comms::transport::nvl::test {

// Where the ranks of a group tell each other words, in memory that forked processes share.
class Board {
 public:
  static constexpr int kMaxRanks = 8, kMaxRounds = 64;

  explicit Board(int size) : size_(size) {
    void* const at =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("mmap");
    shared_ = new (at) Shared();
  }
  ~Board() { ::munmap(shared_, sizeof(Shared)); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // For one rank, which calls it once a round.
  AllGatherStrings of(int rank) {
    return [this, rank, round = 0](const std::string& text) mutable {
      auto& current = shared_->rounds[round++];
      auto& own = current.entries[rank];
      own.size = text.size();
      text.copy(own.text, sizeof own.text);
      ++current.arrived;
      while (current.arrived.load() < size_) std::this_thread::yield();
      std::vector<std::string> all;
      for (int peer = 0; peer < size_; ++peer)
        all.emplace_back(current.entries[peer].text, current.entries[peer].size);
      return all;
    };
  }

 private:
  struct Entry {
    size_t size;
    char text[kMaxTextBytes];
  };
  struct Round {
    std::atomic<int> arrived;
    Entry entries[kMaxRanks];
  };
  struct Shared {
    Round rounds[kMaxRounds];
  };
  const int size_;
  Shared* shared_;
};

using Rank = std::function<void(int rank, const AllGatherStrings& exchange)>;

inline void on_threads(int size, const Rank& body) {
  Board board(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { body(rank, board.of(rank)); });
  for (auto& thread : threads) thread.join();
}

// How many of the processes did not end well. `body` throws where something is wrong.
inline int on_processes(int size, const Rank& body) {
  Board board(size);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    int code = 0;
    try {
      body(rank, board.of(rank));
    } catch (const std::exception& e) {
      std::cerr << "rank " << rank << ": " << e.what() << "\n";
      code = 1;
    }
    ::_exit(code);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failed += status == 0 ? 0 : 1;
  }
  return failed;
}

inline void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

inline RankContext context_of(
    int rank, int size,
    std::shared_ptr<const gpu::Driver> driver = gpu::Driver::of(gpu::Runtime::cpu())) {
  return {rank, size, 0, gpu::Runtime::shared_cpu(), std::move(driver)};
}

}  // namespace torch::comms::transport::nvl::test
