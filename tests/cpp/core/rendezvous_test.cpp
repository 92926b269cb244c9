#include "core/rendezvous/rendezvous.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <future>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torchcomms/store_manager.hpp>

#include "base/net/socket.hpp"
#include "core/rendezvous_ranks.hpp"

namespace torch::comms {
namespace {

using Alone = RendezvousTest;
using Given = RendezvousTest;
using Master = RendezvousTest;

TEST_F(Alone, NeedsNoAddressAndNoStore) {
  const auto outcome = meet([] { return rendezvous(launch(0, 1), "solo", with_store({})); });
  expect_one_store({outcome}, "x");
}

TEST_F(Alone, WorksWithPortZero) {
  const Variable address("MASTER_ADDR", "localhost"), port("MASTER_PORT", "0");
  const Variable rank("RANK", "0"), size("WORLD_SIZE", "1");
  const auto outcome = meet([] { return rendezvous("solo", with_store({})); });
  expect_one_store({outcome}, "x");
  EXPECT_EQ(outcome.result->source, "torchrun (RANK=0, WORLD_SIZE=1)");
  EXPECT_EQ(phases_of(outcome), (std::vector<std::string>{"discover"}));
}

TEST_F(Alone, TakesAnyStore) {
  const auto path =
      std::filesystem::temp_directory_path() / ("tc_store_" + std::to_string(::getpid()));
  for (const StorePtr& store :
       {StorePtr(c10::make_intrusive<c10d::HashStore>()),
        StorePtr(c10::make_intrusive<c10d::FileStore>(path.string(), 1)), tcp_store(0, true)})
    for (int round = 0; round < 3; ++round)
      expect_one_store({meet([&] { return rendezvous(launch(0, 1), "solo", with_store(store)); })},
                       "x");
  std::filesystem::remove(path);
}

TEST_F(Given, HashStoreFileStoreTcpStoreAndPrefixStoreAllMeet) {
  const auto path =
      std::filesystem::temp_directory_path() / ("tc_meet_" + std::to_string(::getpid()));
  const StorePtr memory = c10::make_intrusive<c10d::HashStore>();
  const StorePtr server = tcp_store(0, true);
  const std::vector<std::function<StorePtr(int)>> kinds = {
      [&](int) { return memory; },
      [&](int) { return c10::make_intrusive<c10d::FileStore>(path.string(), 3); },
      [&](int rank) { return rank == 0 ? server : tcp_store(port_of(server), false); },
      [&](int rank) {
        return c10::make_intrusive<c10d::PrefixStore>(
            "cpu", rank == 0 ? server : tcp_store(port_of(server), false));
      },
  };
  for (const auto& make : kinds) {
    const auto outcomes = together({0, 1, 2}, [&](int rank) {
      return rendezvous(launch(rank, 3), "train", with_store(make(rank)));
    });
    expect_one_store(outcomes, "x");
    EXPECT_EQ(phases_of(outcomes[1]),
              (std::vector<std::string>{"store", "arrive", "private store", "leave"}));
    for (const auto& outcome : outcomes)
      EXPECT_EQ(outcome.result->address.rfind("tcp://", 0), 0u) << outcome.result->address;
  }
  std::filesystem::remove(path);
}

TEST_F(Given, TheSameNameOnTheSameStoreWorksAgainWhileTheFirstLives) {
  const StorePtr store = tcp_store(0, true);
  std::vector<std::vector<Outcome>> alive;
  for (int round = 0; round < 4; ++round) {
    alive.push_back(together(
        {0, 1}, [&](int rank) { return rendezvous(launch(rank, 2), "again", with_store(store)); }));
    expect_one_store(alive.back(), "round " + std::to_string(round));
  }
}

TEST_F(Given, IsNotNeededAnyMoreAndItsPortIsFree) {
  const uint16_t port = free_port();
  std::vector<std::vector<Outcome>> alive;
  for (int round = 0; round < 3; ++round) {
    StorePtr server = tcp_store(port, true);
    std::vector<StorePtr> clients = {server, tcp_store(port, false)};
    alive.push_back(together({0, 1}, [&](int rank) {
      auto options = with_store(std::move(clients[static_cast<size_t>(rank)]));
      return rendezvous(launch(rank, 2), "c" + std::to_string(round), options);
    }));
    EXPECT_EQ(server.use_count(), 1u);
    server.reset();
  }
  for (const auto& outcomes : alive) expect_one_store(outcomes, "x");
}

TEST_F(Given, PersistentStoreStaysInUseUnderAPrefixOfItsOwn) {
  StorePtr store = tcp_store(0, true);
  const auto port = port_of(store);
  const StorePtr client = tcp_store(port, false);
  const auto start = [&](int rank) {
    auto options = with_store(rank == 0 ? store : client);
    options.hints["persistent_store"] = "true";
    return rendezvous(launch(rank, 2), "kept", options);
  };
  const auto first = together({0, 1}, start), second = together({0, 1}, start);
  // The user lets go of the object that holds the server; the communicator holds it.
  store.reset();
  expect_one_store(first, "first");
  expect_one_store(second, "second");
  EXPECT_EQ(phases_of(first[0]), (std::vector<std::string>{"store", "arrive"}));
  EXPECT_EQ(first[0].result->address, "tcp://127.0.0.1:" + std::to_string(port));
}

// A wait on the communicator's store must not lock the user's.
TEST_F(Given, PersistentStoreHasAConnectionOfItsOwn) {
  const StorePtr store = tcp_store(0, true);
  auto options = with_store(store);
  options.hints["persistent_store"] = "true";
  const auto result = rendezvous(launch(0, 1), "kept", options);
  std::jthread waiter([&] { result.store->wait({"signal"}, seconds(20)); });
  store->set("user", "1");
  result.store->clone()->set("signal", "1");
}

TEST_F(Given, ManyCommunicatorsAtOnceOnOneStore) {
  const StorePtr store = tcp_store(0, true);
  std::vector<std::vector<Outcome>> all(6);
  std::vector<std::jthread> creators;
  for (size_t i = 0; i < all.size(); ++i)
    creators.emplace_back([&, i] {
      all[i] = together({0, 1}, [&](int rank) {
        return rendezvous(launch(rank, 2), "comm" + std::to_string(i), with_store(store));
      });
    });
  creators.clear();
  for (size_t i = 0; i < all.size(); ++i) expect_one_store(all[i], "comm " + std::to_string(i));
}

TEST_F(Master, CommunicatorsInARowOnOnePort) {
  const uint16_t port = free_port();
  const AtPort at(port);
  std::vector<std::vector<Outcome>> alive;
  for (int round = 0; round < 5; ++round) {
    alive.push_back(together(
        {0, 1, 2}, [](int rank) { return rendezvous(launch(rank, 3), "row", with_store({})); }));
    expect_one_store(alive.back(), "x");
    // The port is the user's again.
    EXPECT_NO_THROW(tcp_store(port, true));
  }
}

TEST_F(Master, RanksThatRunAheadMeetInTheNextCommunicator) {
  const AtPort at(free_port());
  std::vector<Outcome> last;
  last = together({0, 1, 2, 3}, [](int rank) {
    std::vector<Rendezvous> alive;
    for (int i = 0; i < 8; ++i)
      alive.push_back(rendezvous(launch(rank, 4), "run" + std::to_string(i % 3), with_store({})));
    return alive.back();
  });
  expect_one_store(last, "x");
}

TEST_F(Master, CommunicatorsCreatedByThreadsAtOnceShareThePort) {
  const AtPort at(free_port());
  std::vector<std::vector<Outcome>> all(6);
  std::vector<std::jthread> creators;
  for (size_t i = 0; i < all.size(); ++i)
    creators.emplace_back([&, i] {
      all[i] = together({0, 1, 2}, [&](int rank) {
        return rendezvous(launch(rank, 3), "t" + std::to_string(i), with_store({}));
      });
    });
  creators.clear();
  for (size_t i = 0; i < all.size(); ++i) expect_one_store(all[i], "comm " + std::to_string(i));
}

// The server of an earlier communicator closes under a rank that is early for the next one.
TEST_F(Master, ARankThatIsEarlyFindsItsWayAfterTheStoreCloses) {
  const uint16_t port = free_port();
  const AtPort at(port);
  StorePtr old_server = tcp_store(port, true);
  std::jthread closer([&] {
    // Rank 1 has arrived once its mark is there.
    old_server->wait({"torchcomms/5:early/0/arrived"}, seconds(20));
    old_server.reset();
  });
  std::optional<Outcome> zero;
  std::jthread rank0([&] {
    closer.join();
    zero = meet([] { return rendezvous(launch(0, 2), "early", with_store({})); });
  });
  const auto one = meet([] { return rendezvous(launch(1, 2), "early", with_store({})); });
  rank0.join();
  expect_one_store({*zero, one}, "x");
}

// A store that accepts connections has come back, however long it takes to answer.
TEST_F(Master, ARankThatIsEarlyWaitsForAStoreThatAnswersLate) {
  uint16_t port = free_port();
  const AtPort at(port);
  StorePtr old_server = tcp_store(port, true);
  auto one = std::async(std::launch::async, [] {
    return meet([] { return rendezvous(launch(1, 2), "early", with_store({})); });
  });
  old_server->wait({"torchcomms/5:early/0/arrived"}, seconds(20));
  old_server.reset();
  {
    const auto silent = base::listen_on_all_interfaces(port);
    // Longer than the address may refuse connections.
    EXPECT_EQ(one.wait_for(milliseconds(2500)), std::future_status::timeout);
  }
  const auto zero = meet([] { return rendezvous(launch(0, 2), "early", with_store({})); });
  expect_one_store({zero, one.get()}, "x");
}

TEST_F(Master, TheLaunchersStoreIsUsedAsAClientAndPerAttempt) {
  const StorePtr agent = tcp_store(0, true);
  const AtPort at(port_of(agent));
  const Variable serves("TORCHELASTIC_USE_AGENT_STORE", "True");
  const auto start = [](int rank) { return rendezvous(launch(rank, 2), "w", with_store({})); };
  for (const char* attempt : {"0", "1"}) {
    const Variable count("TORCHELASTIC_RESTART_COUNT", attempt);
    // What a killed worker of the attempt before left behind does no harm.
    const std::string mark = std::string("torchcomms/attempt ") + attempt + "/1:w/";
    EXPECT_FALSE(agent->check({mark + "next"}));
    for (int round = 0; round < 2; ++round) expect_one_store(together({0, 1}, start), "x");
    EXPECT_TRUE(agent->check({mark + "next"}));
    agent->set("torchcomms/attempt 1/stale", "1");
  }
}

TEST_F(Master, AStoreOfTheSameProcessOnThePortIsShared) {
  const uint16_t port = free_port();
  const AtPort at(port);
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.waitWorkers = false;
  options.multiTenant = true;  // as torch.distributed's env:// makes it
  const auto torchs = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  for (int round = 0; round < 2; ++round)
    expect_one_store(
        together({0, 1}, [](int rank) { return rendezvous(launch(rank, 2), "s", with_store({})); }),
        "x");
}

TEST_F(RendezvousTest, PhasesAddUpToTheTotal) {
  const AtPort at(free_port());
  const auto outcomes =
      together({0, 1}, [](int rank) { return rendezvous(launch(rank, 2), "x", with_store({})); });
  for (const auto& outcome : outcomes) {
    double sum = 0;
    for (const auto& phase : outcome.result->phases) sum += phase.milliseconds;
    EXPECT_LE(sum, static_cast<double>(outcome.took.count()) + 1.0);
  }
}

TEST_F(RendezvousTest, ABackendMayBeginWhenAllRanksAreThere) {
  const StorePtr memory = c10::make_intrusive<c10d::HashStore>();
  std::array<std::string, 3> received_ids;
  const auto outcomes = together({0, 1, 2}, [&](int rank) {
    const OverlappedConnect overlapped_connect{
        [](int) {}, [&] { return "of " + std::to_string(rank); },
        [&](int self, int size, const std::string& connect_id) {
          EXPECT_EQ(size, 3);
          received_ids.at(static_cast<size_t>(self)) = connect_id;
        }};
    return rendezvous(launch(rank, 3), "train", with_store(memory), "", {}, "new_comm",
                      overlapped_connect);
  });
  expect_one_store(outcomes, "x");
  for (const auto& connect_id : received_ids) EXPECT_EQ(connect_id, "of 0");
  EXPECT_EQ(phases_of(outcomes[1]),
            (std::vector<std::string>{"store", "arrive", "begin", "private store", "leave"}));
}

TEST_F(RendezvousTest, WhatABackendCannotBringIsThrownAsItIsAndToldToTheOthers) {
  const StorePtr memory = c10::make_intrusive<c10d::HashStore>();
  const auto outcomes = together({0, 1}, [&](int rank) {
    const OverlappedConnect overlapped_connect{
        [](int self) {
          if (self == 1) throw CommError(Errc::kUnsupported, "not here");
        },
        []() -> std::string { return "x"; },
        [](int, int, const std::string&) { ADD_FAILURE() << "not all are there"; }};
    return rendezvous(launch(rank, 2), "train", with_store(memory), "", {}, "new_comm",
                      overlapped_connect);
  });
  ASSERT_TRUE(outcomes[0].error && outcomes[1].error);
  EXPECT_EQ(outcomes[0].error->code(), Errc::kPeerFailed);
  EXPECT_EQ(outcomes[0].error->context().peer, 1);
  EXPECT_NE(outcomes[0].error->why().find("not here"), std::string::npos);
  EXPECT_EQ(outcomes[1].error->code(), Errc::kUnsupported);
  EXPECT_EQ(outcomes[1].error->why(), "not here");
}

TEST_F(RendezvousTest, WhatIsLeftOfTheLimitIsHandedOn) {
  const Variable limit("TORCHCOMM_INIT_TIMEOUT_SECONDS", "50");
  const auto result =
      rendezvous(launch(0, 1), "x", with_store(c10::make_intrusive<c10d::HashStore>()));
  EXPECT_EQ(result.timeout.duration, seconds(50));
  EXPECT_EQ(result.timeout.setting, "TORCHCOMM_INIT_TIMEOUT_SECONDS");
  EXPECT_GT(result.deadline.remaining(), seconds(40));
  EXPECT_LE(result.deadline.remaining(), seconds(50));
}

using StoreManager = RendezvousTest;

TEST_F(StoreManager, ASingleRankNeedsNoAddress) {
  const Variable rank("RANK", "0"), size("WORLD_SIZE", "1");
  const auto store = createPrefixStore("p");
  EXPECT_NE(dynamic_cast<c10d::PrefixStore*>(store.get()), nullptr);
  store->set("k", "v");
  EXPECT_EQ(store->get_to_str("k"), "v");
  const auto copy = dupPrefixStore("p", c10::make_intrusive<c10d::HashStore>());
  EXPECT_NE(dynamic_cast<c10d::PrefixStore*>(copy.get()), nullptr);
  EXPECT_FALSE(copy->check({"k"}));
}

TEST_F(StoreManager, RankZeroServesAtTheMasterAddress) {
  const uint16_t port = free_port();
  const AtPort at(port);
  const Variable rank("RANK", "0"), size("WORLD_SIZE", "2");
  const auto store = createPrefixStore("p");
  store->set("k", "v");
  EXPECT_TRUE(tcp_store(port, false)->check({"torchcomms/p/k"}));
}

TEST_F(StoreManager, ErrorsAreTyped) {
  const Variable rank("RANK", "1"), size("WORLD_SIZE", "2");
  EXPECT_THROW(createPrefixStore("p", milliseconds(0)), CommError);
  EXPECT_THROW(dupPrefixStore("p", {}), CommError);
  const AtPort at(free_port());
  try {
    createPrefixStore("p", milliseconds(200));
    FAIL();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kTimeout) << e.what();
  }
}

}  // namespace
}  // namespace torch::comms
