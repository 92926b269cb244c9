// What the start-up says when something is wrong, and how fast. Where a process must die or freeze,
// it is a real one.
#include <signal.h>
#include <sys/prctl.h>

#include <atomic>

#include "bootstrap/arrival_barrier.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/rendezvous_ranks.hpp"
#include "core/store_process.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

using Failure = RendezvousTest;

TEST_F(Failure, AMissingRankIsNamedWithinTheLimitOfTheStartUp) {
  const AtPort at(free_port());
  const Variable limit("TORCHCOMM_INIT_TIMEOUT_SECONDS", "0.4");
  const auto outcomes = together(
      {0, 2}, [](int rank) { return rendezvous(launch(rank, 3), "train", with_store({})); });
  for (const auto& outcome : outcomes) {
    expect_error(
        outcome, Errc::kTimeout,
        {"new_comm on 'train'", "phase 'arrive'", "rank 1 of 3 did not arrive within 0.4 s",
         "tcp://127.0.0.1:", "raise TORCHCOMM_INIT_TIMEOUT_SECONDS", "the test (r="});
    expect_on_time(outcome, milliseconds(400));
    EXPECT_EQ(outcome.error->context().peer, 1);
  }
}

TEST_F(Failure, TheTimeoutOfTheCommunicatorCountsWhereNoVariableIsSet) {
  const StorePtr store = tcp_store(0, true);
  const auto outcome =
      meet([&] { return rendezvous(launch(0, 2), "train", with_store(store, milliseconds(300))); });
  expect_error(outcome, Errc::kTimeout,
               {"within 0.3 s", "timeout= of new_comm", "TORCHCOMM_TIMEOUT_SECONDS"});
  expect_on_time(outcome, milliseconds(300));
}

TEST_F(Failure, ARetryAfterAMissingRankMeets) {
  const StorePtr store = tcp_store(0, true);
  EXPECT_TRUE(meet([&] {
                return rendezvous(launch(0, 2), "x", with_store(store, milliseconds(100)));
              }).error.has_value());
  expect_one_store(
      together({0, 1},
               [&](int rank) { return rendezvous(launch(rank, 2), "x", with_store(store)); }),
      "x");
}

TEST_F(Failure, AnAddressNobodyServesIsNamedWithinTheLimitOfTheStore) {
  const uint16_t port = free_port();
  const AtPort at(port);
  const Variable limit("TORCHCOMM_STORE_TIMEOUT_SECONDS", "0.5");
  const auto outcome = meet([] { return rendezvous(launch(1, 2), "train", with_store({})); });
  expect_error(outcome, Errc::kTimeout,
               {"phase 'store'", "cannot reach tcp://127.0.0.1:" + std::to_string(port), "refused",
                "The timeout is 0.5 s", "raise TORCHCOMM_STORE_TIMEOUT_SECONDS"});
  expect_on_time(outcome, milliseconds(500));
}

TEST_F(Failure, AHostNameNobodyKnowsIsNamed) {
  const Variable address("MASTER_ADDR", "no-such-host.invalid"), port("MASTER_PORT", "29500");
  const Variable limit("TORCHCOMM_STORE_TIMEOUT_SECONDS", "0.3");
  const auto outcome = meet([] { return rendezvous(launch(1, 2), "train", with_store({})); });
  expect_error(outcome, Errc::kTimeout, {"tcp://no-such-host.invalid:29500", "name"});
  EXPECT_LE(outcome.took, milliseconds(1300));
}

TEST_F(Failure, APortThatIsTakenIsNamedByRankZero) {
  const int fd = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(fd, 4), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  const AtPort at(ntohs(address.sin6_port));
  expect_error(meet([] { return rendezvous(launch(0, 2), "train", with_store({})); }),
               Errc::kResourceExhausted,
               {"port " + std::to_string(ntohs(address.sin6_port)), "MASTER_PORT", "store="});
  // To the other rank it looks like a store that never answers.
  const auto other =
      meet([] { return rendezvous(launch(1, 2), "train", with_store({}, milliseconds(300))); });
  expect_error(other, Errc::kTimeout, {"does not answer as a store"});
  expect_on_time(other, milliseconds(300));
  ::close(fd);
}

TEST_F(Failure, WithoutAddressTheErrorTellsWhatToSet) {
  expect_error(meet([] { return rendezvous(launch(0, 2), "train", with_store({})); }),
               Errc::kInvalidArgument,
               {"phase 'store'", "MASTER_ADDR is unset", "Set MASTER_ADDR"});
}

TEST_F(Failure, AnAddressThatIsNotRankZerosIsDoubted) {
  const auto port = std::to_string(free_port());
  const Variable host("MASTER_ADDR", "203.0.113.77"), at("MASTER_PORT", port.c_str());
  expect_error(
      meet([] { return rendezvous(launch(0, 2), "train", with_store({}, milliseconds(100))); }),
      Errc::kTimeout,
      {"store tcp://203.0.113.77:" + port,
       "MASTER_ADDR=203.0.113.77 is not an address of rank 0's host"});
}

TEST_F(Failure, AFirstHostThatIsNotRankZerosIsRefused) {
  const Variable nodes("SLURM_STEP_NODELIST", "no-such-host-[1-2].invalid");
  auto slurm = launch(0, 2);
  slurm.source = "Slurm";
  slurm.job = "1.0";
  expect_error(meet([&] { return rendezvous(slurm, "train", with_store({})); }),
               Errc::kInvalidArgument,
               {"MASTER_ADDR is unset", "the first host of SLURM_STEP_NODELIST",
                "no-such-host-1.invalid", "Set MASTER_ADDR"});
}

TEST_F(Failure, AJobsShellIsPointedToSrun) {
  const Variable nodes("SLURM_STEP_NODELIST", "here");
  auto slurm = launch(0, 2);
  slurm.source = "Slurm";
  slurm.job = std::to_string(::getpid());
  expect_error(meet([&] { return rendezvous(slurm, "train", with_store({}, milliseconds(100))); }),
               Errc::kTimeout, {"rank 1 of 2 did not arrive", "srun"});
}

TEST_F(Failure, ABadLimitNamesTheVariable) {
  const Variable limit("TORCHCOMM_INIT_TIMEOUT_SECONDS", "soon");
  expect_error(meet([] { return rendezvous(launch(0, 2), "train", with_store({})); }),
               Errc::kInvalidArgument, {"TORCHCOMM_INIT_TIMEOUT_SECONDS='soon'"});
}

TEST_F(Failure, WithoutALauncherTheErrorListsWhatWasLookedAt) {
  expect_error(meet([] { return rendezvous("train", with_store({})); }), Errc::kInvalidArgument,
               {"new_comm on 'train'", "phase 'discover'", "TORCHCOMM_RANK is unset"});
}

TEST_F(Failure, TwoSizesAreNamedOnAll) {
  const StorePtr store = tcp_store(0, true);
  const auto outcomes = together({0, 1}, [&](int rank) {
    return rendezvous(launch(rank, 3 + rank), "train", with_store(store));
  });
  for (const auto& outcome : outcomes) {
    expect_error(outcome, Errc::kMismatch,
                 {"3 ranks", "4 ranks", "Rank and size come from the test"});
    EXPECT_LE(outcome.took, seconds(2));
  }
}

TEST_F(Failure, TwoBackendsAreNamedOnAll) {
  const StorePtr store = tcp_store(0, true);
  const auto outcomes = together({0, 1, 2}, [&](int rank) {
    return rendezvous(launch(rank, 3), "train", with_store(store), rank == 1 ? "ctran" : "gloo");
  });
  for (const auto& outcome : outcomes) {
    expect_error(outcome, Errc::kMismatch,
                 {"phase 'arrive'", "rank 1 of 3 for 'ctran', ranks 0, 2 of 3 for 'gloo'"});
    EXPECT_LE(outcome.took, seconds(2));
  }
}

TEST_F(Failure, ADuplicateRankIsNamedOnAll) {
  const StorePtr store = tcp_store(0, true);
  const auto outcomes = together(
      {1, 1}, [&](int rank) { return rendezvous(launch(rank, 3), "train", with_store(store)); });
  for (const auto& outcome : outcomes)
    expect_error(outcome, Errc::kMismatch,
                 {"rank 1 is here twice", "process " + std::to_string(::getpid())});
}

// A rank that arrives and then does `next` instead of its part in the communicator's own store.
bootstrap::ArrivalBarrierResult arrive_only(
    int rank, int size, const StorePtr& store,
    const std::function<void(StoreKeyValue&, const std::string& keys)>& next) {
  const bootstrap::Deadline deadline(seconds(20));
  StoreKeyValue kv(store->clone(), deadline, {});
  const bootstrap::ArrivalBarrierParams self{.key_scope = "torchcomms",
                                             .name = "train",
                                             .rank = rank,
                                             .size = size,
                                             .process_description = "a ghost",
                                             .timeout = {seconds(20), ""},
                                             .deadline = deadline};
  const auto arrival = bootstrap::wait_for_all_ranks(kv, self);
  next(kv, arrival.key_prefix);
  return arrival;
}

TEST_F(Failure, ARankThatCannotReachTheOwnStoreIsNamedOnAll) {
  const StorePtr store = tcp_store(0, true);
  std::jthread other_rank(
      [&] { arrive_only(2, 3, store, [](StoreKeyValue&, const std::string&) {}); });
  const auto outcomes = together({0, 1}, [&](int rank) {
    return rendezvous(launch(rank, 3), "train", with_store(store, milliseconds(500)));
  });
  for (const auto& outcome : outcomes) {
    expect_error(outcome, Errc::kTimeout,
                 {"phase 'leave'", "rank 2 of 3 did not connect to the communicator's own store",
                  "timeout= of new_comm"});
    expect_on_time(outcome, milliseconds(500));
  }
}

TEST_F(Failure, WhatKeepsRankZeroFromServingIsToldToTheOthers) {
  const StorePtr store = tcp_store(0, true);
  std::jthread other_rank([&] {
    arrive_only(0, 2, store, [](StoreKeyValue& kv, const std::string& keys) {
      kv.set(keys + "private", "failed no descriptors left");
    });
  });
  const auto outcome = meet([&] { return rendezvous(launch(1, 2), "train", with_store(store)); });
  expect_error(outcome, Errc::kPeerFailed,
               {"phase 'private store'", "rank 0 could not open", "no descriptors left"});
  EXPECT_LE(outcome.took, seconds(2));
}

TEST_F(Failure, AnUnreadableAddressOfTheOwnStoreIsAnError) {
  for (const char* text : {"", "ok", "ok 70000 h i", "ok 0 h i", "ok x h i", "ok 1", "what"}) {
    const StorePtr store = tcp_store(0, true);
    std::jthread other_rank([&] {
      arrive_only(0, 2, store, [&](StoreKeyValue& kv, const std::string& keys) {
        kv.set(keys + "private", text);
      });
    });
    expect_error(meet([&] { return rendezvous(launch(1, 2), "train", with_store(store)); }),
                 Errc::kPeerFailed, {"rank 0 did not write"});
  }
}

TEST_F(Failure, AnOwnStoreBehindAFirewallIsExplained) {
  const StorePtr store = tcp_store(0, true);
  const auto closed = std::to_string(free_port());
  std::jthread other_rank([&] {
    arrive_only(0, 2, store, [&](StoreKeyValue& kv, const std::string& keys) {
      kv.set(keys + "private", "ok " + closed + " 127.0.0.1 elsewhere");
    });
  });
  const auto outcome =
      meet([&] { return rendezvous(launch(1, 2), "train", with_store(store, milliseconds(400))); });
  expect_error(outcome, Errc::kTimeout,
               {"cannot reach tcp://127.0.0.1:" + closed, "firewall", "persistent_store=true"});
  expect_on_time(outcome, milliseconds(400));
}

// What a StoreProcess runs: not a test of its own.
TEST(StoreProcessBody, DISABLED_ServesUntilKilled) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const StorePtr store = tcp_store(0, true);
  const uint16_t port = port_of(store);
  ASSERT_EQ(::write(std::atoi(std::getenv(kStorePipe)), &port, sizeof port),
            static_cast<ssize_t>(sizeof port));
  while (true) ::pause();
}

TEST_F(Failure, AKilledStoreIsAnErrorAtOnce) {
  const StoreProcess server;
  const StorePtr watcher = tcp_store(server.port(), false);
  std::jthread killer([&] {
    watcher->wait({"torchcomms/5:train/0/arrived"}, seconds(20));
    server.signal(SIGKILL);
  });
  const auto outcome = meet([&] {
    return rendezvous(launch(0, 2), "train", with_store(tcp_store(server.port(), false)));
  });
  expect_error(outcome, Errc::kPeerFailed,
               {"phase 'arrive'", "tcp://127.0.0.1:" + std::to_string(server.port()),
                "process that serves it"});
  EXPECT_LE(outcome.took, seconds(2));
}

TEST_F(Failure, AStoreThatDiedBeforeTheStartIsAnErrorWithinTwoSeconds) {
  StorePtr client;
  uint16_t port = 0;
  {
    const StoreProcess server;
    port = server.port();
    client = tcp_store(port, false);
  }
  const auto outcome = meet([&] { return rendezvous(launch(0, 2), "train", with_store(client)); });
  expect_error(outcome, Errc::kPeerFailed,
               {"phase 'store'", "lost the store", "tcp://127.0.0.1:" + std::to_string(port)});
  EXPECT_LE(outcome.took, seconds(2));
}

TEST_F(Failure, AKilledMasterIsAnErrorWithinTwoSeconds) {
  const StoreProcess server;
  const AtPort at(server.port());
  const StorePtr watcher = tcp_store(server.port(), false);
  std::jthread killer([&] {
    watcher->wait({"torchcomms/5:train/0/arrived"}, seconds(20));
    server.signal(SIGKILL);
  });
  const auto outcome = meet([] { return rendezvous(launch(1, 2), "train", with_store({})); });
  expect_error(outcome, Errc::kPeerFailed,
               {"lost the store tcp://127.0.0.1:", "did not come back within 1.5 s"});
  EXPECT_LE(outcome.took, milliseconds(2500));
}

// A stopped server leaves TCPStore's own calls blocked for ever, whatever their timeout.
TEST_F(Failure, AStoppedStoreIsAnErrorAtTheLimit) {
  const StoreProcess server;
  const StorePtr store = tcp_store(server.port(), false);
  const StorePtr watcher = tcp_store(server.port(), false);
  std::jthread stopper([&] {
    watcher->wait({"torchcomms/5:train/0/arrived"}, seconds(20));
    server.signal(SIGSTOP);
  });
  const auto outcome =
      meet([&] { return rendezvous(launch(0, 2), "train", with_store(store, milliseconds(600))); });
  expect_error(outcome, Errc::kTimeout,
               {"phase 'arrive'", "did not answer", "its server is stopped"});
  expect_on_time(outcome, milliseconds(600));
}

TEST_F(Failure, AStoreStoppedBeforeTheStartIsAnErrorAtTheLimit) {
  const StoreProcess server;
  const StorePtr store = tcp_store(server.port(), false);
  server.signal(SIGSTOP);
  const auto outcome =
      meet([&] { return rendezvous(launch(0, 2), "train", with_store(store, milliseconds(400))); });
  expect_error(outcome, Errc::kTimeout, {"phase 'store'", "does not answer", "0.4 s"});
  expect_on_time(outcome, milliseconds(400));
}

struct Stop {};

TEST_F(Failure, AnInterruptEndsTheWaitAndTellsTheOthers) {
  const StorePtr store = tcp_store(0, true);
  std::atomic<std::thread::id> interrupted{};
  set_interrupt_check([&] {
    if (std::this_thread::get_id() == interrupted.load()) {
      interrupted = std::thread::id{};
      throw Stop{};
    }
  });
  std::optional<Outcome> other;
  std::jthread second(
      [&] { other = meet([&] { return rendezvous(launch(1, 3), "train", with_store(store)); }); });
  const StorePtr watcher = store->clone();
  std::jthread first([&] {
    const auto self = std::this_thread::get_id();
    std::thread trigger([&, self] {
      watcher->wait({"torchcomms/5:train/0/rank/0", "torchcomms/5:train/0/rank/1"}, seconds(20));
      interrupted = self;
    });
    EXPECT_THROW(rendezvous(launch(0, 3), "train", with_store(store)), Stop);
    trigger.join();
  });
  first.join();
  second.join();
  set_interrupt_check({});
  expect_error(*other, Errc::kPeerFailed, {"rank 0 left before all ranks", "interrupted"});
  EXPECT_LE(other->took, seconds(10));
}

}  // namespace
}  // namespace torch::comms
