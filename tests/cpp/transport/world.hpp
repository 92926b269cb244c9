#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "transport/transport.hpp"

// Ranks of a test, as threads of this process.
namespace torch::comms::transport::test {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline Deadline in(std::chrono::steady_clock::duration time) {
  return std::chrono::steady_clock::now() + time;
}
constexpr seconds kLong{20};  // for what takes milliseconds
// Sleeps at once, and never waits for longer.
constexpr WaitPolicy kSleepy{.spins = 0, .awake_time = {}, .max_awake_time = {}};

// Sanitizers slow everything by 2 to 15 times: what is done often is done less often then.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// What a suite is run over.
struct Link {
  std::string name;
  int ranks = 3;  // 1: it reaches its own rank alone
  std::function<std::unique_ptr<Transport>(const TransportOptions&)> make;
  bool has_peers() const { return ranks > 1; }
};
inline void PrintTo(const Link& link, std::ostream* out) { *out << link.name; }

// What rank `from` sends rank `to` as its message `number`.
inline std::vector<std::byte> pattern(int from, int to, uint64_t number, size_t size) {
  std::vector<std::byte> bytes(size);
  uint64_t state = (static_cast<uint64_t>(from) << 40) + (static_cast<uint64_t>(to) << 20) + number;
  for (size_t i = 0; i < size; i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t word = state >> 8;
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, size - i));
  }
  return bytes;
}

struct Rank {
  Transport& link;
  int rank, size;

  // Ascending: so all ranks go through pairs in one order, and may exchange with one after another.
  std::vector<int> peers() const {
    std::vector<int> peer_ranks;
    for (int peer = 0; peer < size; ++peer)
      if (peer != rank || size == 1) peer_ranks.push_back(peer);
    return peer_ranks;
  }
  int next() const { return (rank + 1) % size; }
  int previous() const { return (rank + size - 1) % size; }
  void wait(const Request& request) {
    const auto deadline = in(kLong);
    const auto end = link.wait(request, deadline);
    const bool late = std::chrono::steady_clock::now() >= deadline;  // nobody woke us
    if (end == WaitResult::kDone && request.is_ok() && !late) return;
    if (end == WaitResult::kTimeout || late) throw std::runtime_error("a wait took too long");
    throw link.error(request, "test");
  }
  // How a request ends that is not to succeed.
  Errc error_of(const Request& request) {
    EXPECT_EQ(link.wait(request, in(kLong)) == WaitResult::kTimeout, false);
    EXPECT_TRUE(request.is_done() && !request.is_ok());
    return request.error();
  }
  // Returns when all ranks are here. Nobody closes a link that others still need.
  void barrier() {
    for (int distance = 1; distance < size; distance *= 2) {
      Request out, back;
      link.receive(back, (rank + size - distance) % size, kBarrier, Bytes{});
      link.send(out, (rank + distance) % size, kBarrier, ConstBytes{});
      wait(out);
      wait(back);
    }
  }
  static constexpr uint32_t kBarrier = 0xba441e4;
};

inline std::vector<std::unique_ptr<Transport>> make_links(
    const Link& under_test, const std::function<void(TransportOptions&)>& change = {}) {
  const Secret job = random_secret();
  std::vector<std::unique_ptr<Transport>> links;
  for (int rank = 0; rank < under_test.ranks; ++rank) {
    TransportOptions options;
    options.rank = rank;
    options.size = options.local_ranks = under_test.ranks;
    options.job = job;
    if (change) change(options);
    links.push_back(under_test.make(options));
  }
  for (auto& link : links)
    for (auto& other : links)
      if (link != other || links.size() == 1)
        link->connect(other->endpoint().rank,
                      parse_endpoint(serialize(other->endpoint(), job), job));
  return links;
}

// Runs `body` on every rank, each in a thread of its own. What it throws fails the test, and ends
// the other ranks.
inline void run(const Link& under_test, const std::function<void(Rank&)>& body,
                const std::function<void(TransportOptions&)>& change = {}) {
  auto links = make_links(under_test, change);
  std::vector<std::string> errors(links.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < links.size(); ++i)
    threads.emplace_back([&, i] {
      Rank rank{*links[i], static_cast<int>(i), under_test.ranks};
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[i] = error.what();
        for (auto& link : links) link->abort_signal().raise();
      }
    });
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(errors[i], "") << "rank " << i;
}

}  // namespace torch::comms::transport::test
