#pragma once

// Ranks as threads of this process, each with its own rendezvous.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torchcomms/base/error.hpp>

#include "core/rendezvous/rendezvous.hpp"
#include "core/variable.hpp"

namespace torch::comms {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

inline bootstrap::LaunchInfo launch(int rank, int size) {
  return {.rank = rank,
          .size = size,
          .source = "the test",
          .evidence = "r=" + std::to_string(rank),
          .local_rank = {},
          .local_size = {},
          .job = {}};
}

inline CommOptions with_store(StorePtr store, milliseconds timeout = seconds(30)) {
  CommOptions options;
  options.store = std::move(store);
  options.timeout = timeout;
  return options;
}

inline uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return ntohs(address.sin_port);
}

inline StorePtr tcp_store(uint16_t port, bool server) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = server;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}
inline uint16_t port_of(const StorePtr& store) {
  return dynamic_cast<c10d::TCPStore&>(*store).getPort();
}

struct Outcome {
  std::optional<Rendezvous> result;
  std::optional<CommError> error;
  milliseconds took{};
};

inline Outcome meet(const std::function<Rendezvous()>& start) {
  Outcome outcome;
  const auto begin = Clock::now();
  try {
    outcome.result = start();
  } catch (const CommError& e) {
    outcome.error = e;
  }
  outcome.took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  return outcome;
}

// One thread a rank, all at once.
inline std::vector<Outcome> together(const std::vector<int>& ranks,
                                     const std::function<Rendezvous(int rank)>& start) {
  std::vector<Outcome> outcomes(ranks.size());
  std::latch ready(static_cast<std::ptrdiff_t>(ranks.size()));
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      ready.arrive_and_wait();
      outcomes[i] = meet([&] { return start(ranks[i]); });
    });
  threads.clear();
  return outcomes;
}

// Every rank writes, every rank reads all: on one store, and on nobody else's.
inline void expect_one_store(const std::vector<Outcome>& outcomes, const std::string& token) {
  for (const auto& outcome : outcomes)
    ASSERT_TRUE(outcome.result.has_value()) << outcome.error->what();
  for (const auto& outcome : outcomes) {
    const auto& m = *outcome.result;
    EXPECT_EQ(m.size, static_cast<int>(outcomes.size()));
    EXPECT_FALSE(m.store->check({"k" + std::to_string(m.rank)})) << "not a fresh store";
    m.store->set("k" + std::to_string(m.rank), token);
  }
  for (const auto& outcome : outcomes)
    for (int rank = 0; rank < static_cast<int>(outcomes.size()); ++rank) {
      const auto key = "k" + std::to_string(rank);
      outcome.result->store->wait({key}, seconds(5));
      EXPECT_EQ(outcome.result->store->get_to_str(key), token);
    }
}

inline std::vector<std::string> phases_of(const Outcome& outcome) {
  std::vector<std::string> names;
  for (const auto& phase : outcome.result->phases) names.push_back(phase.name);
  return names;
}

inline void expect_error(const Outcome& outcome, Errc code,
                         const std::vector<std::string>& fragments) {
  ASSERT_TRUE(outcome.error.has_value());
  const std::string text = outcome.error->what();
  EXPECT_EQ(outcome.error->code(), code) << text;
  for (const auto& fragment : fragments)
    EXPECT_NE(text.find(fragment), std::string::npos) << fragment << " in: " << text;
}

// Within the limit and one second.
inline void expect_on_time(const Outcome& outcome, milliseconds limit) {
  EXPECT_GE(outcome.took, limit - milliseconds(20));
  EXPECT_LE(outcome.took, limit + seconds(1));
}

class RendezvousTest : public testing::Test {
 protected:
  // Nothing of the environment that runs the test takes part.
  std::vector<std::unique_ptr<Variable>> cleared_ = [] {
    std::vector<std::unique_ptr<Variable>> all;
    for (const char* name :
         {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE",
          "TORCHELASTIC_RESTART_COUNT", "TORCHCOMM_STORE_TIMEOUT_SECONDS",
          "TORCHCOMM_INIT_TIMEOUT_SECONDS", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
          "PMI_RANK", "SLURM_PROCID", "TORCHCOMM_RANK", "TORCHCOMM_SIZE"})
      all.push_back(std::make_unique<Variable>(name, nullptr));
    return all;
  }();
};

// The rendezvous address while this lives.
class AtPort {
 public:
  explicit AtPort(uint16_t port)
      : address_("MASTER_ADDR", "127.0.0.1"), port_("MASTER_PORT", std::to_string(port).c_str()) {}

 private:
  Variable address_, port_;
};

}  // namespace torch::comms
