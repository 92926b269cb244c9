// The store as all communicators of a process share it.
#include "core/rendezvous/shared_store.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "core/rendezvous/store_adapter.hpp"
#include "core/rendezvous_ranks.hpp"
#include "core/store_process.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using Outcome = SharedStore::StoreCallStatus;

// The inodes of the sockets of this process.
std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const auto target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// How many sockets of this process are connected to `port`.
int connections_to(uint16_t port) {
  const auto own = own_sockets();
  int found = 0;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, field;
      fields >> number >> local >> remote;
      for (int i = 0; i < 7; ++i) fields >> field;  // the last one is the inode
      const auto at = remote.rfind(':');
      if (std::stoi(remote.substr(at + 1), nullptr, 16) == port && own.contains(field)) ++found;
    }
  }
  return found;
}

SharedStore::StoreOperation waits_for(const std::string& key) {
  return [key](c10d::Store& store) { return store.check({key}); };
}

TEST(SharedStore, AWaitDelaysNoOtherOperation) {
  const auto shared = SharedStore::of(tcp_store(0, true));
  std::atomic<Outcome> outcome{Outcome::kNoAnswer};
  std::jthread waiter([&] { outcome = shared->run(waits_for("late"), seconds(60)); });
  PolledStore store(shared);
  for (int i = 0; i < 100; ++i) store.set("k" + std::to_string(i), {1});
  EXPECT_EQ(store.getNumKeys() >= 100, true);
  store.set("late", {1});
  waiter.join();
  EXPECT_EQ(outcome.load(), Outcome::kDone);
}

TEST(SharedStore, AnInterruptedWaitEndsNoOtherOne) {
  const auto shared = SharedStore::of(tcp_store(0, true));
  std::atomic<std::thread::id> interrupted{};
  set_interrupt_check([&] {
    if (std::this_thread::get_id() == interrupted.load()) throw 1;
  });
  std::jthread first([&] {
    interrupted = std::this_thread::get_id();
    EXPECT_THROW(shared->run(waits_for("late"), seconds(60)), Interrupted);
  });
  std::atomic<Outcome> outcome{Outcome::kNoAnswer};
  std::jthread second([&] { outcome = shared->run(waits_for("late"), seconds(60)); });
  first.join();
  PolledStore(shared).set("late", {1});
  second.join();
  set_interrupt_check({});
  EXPECT_EQ(outcome.load(), Outcome::kDone);
}

TEST(SharedStore, ALimitEndsItsWaitAlone) {
  const auto shared = SharedStore::of(tcp_store(0, true));
  EXPECT_EQ(shared->run(waits_for("never"), milliseconds(20)), Outcome::kTimedOut);
  PolledStore store(shared);
  store.set("k", {1});
  EXPECT_TRUE(store.check({"k"}));
}

TEST(SharedStore, TryGetSetsNothing) {
  const std::vector<StorePtr> stores = {tcp_store(0, true), c10::make_intrusive<c10d::HashStore>()};
  for (const auto& store : stores) {
    EXPECT_EQ(try_get(*store, "k"), std::nullopt);
    EXPECT_FALSE(store->check({"k"}));
    store->set("k", std::vector<uint8_t>{1, 2});
    EXPECT_EQ(try_get(*store, "k"), (std::vector<uint8_t>{1, 2}));
    store->set("k", std::vector<uint8_t>{});
    EXPECT_EQ(try_get(*store, "k"), std::vector<uint8_t>{});
  }
}

// A process that dies closes its connections before its listening socket.
TEST(SharedStore, ARefusalEndsTheSearchForAServerThatWasThere) {
  const auto begin = Clock::now();
  try {
    SharedStore::connect("127.0.0.1", free_port(), seconds(60), Deadline(seconds(60)), {},
                         RefusedConnectPolicy::kFail);
    FAIL();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kPeerFailed);
    EXPECT_LT(Clock::now() - begin, seconds(30));
  }
}

TEST(SharedStore, ALostServerEndsAllWaitsAtOnce) {
  StorePtr served = tcp_store(0, true);
  const auto shared = SharedStore::of(served->clone());
  std::vector<std::jthread> waiters;
  std::atomic<int> failed{0};
  std::latch waiting(3);
  for (int i = 0; i < 3; ++i)
    waiters.emplace_back([&, i] {
      bool first = true;
      try {
        shared->run(
            [&, i, first](c10d::Store& store) mutable {
              const bool here = store.check({"k" + std::to_string(i)});
              if (std::exchange(first, false)) waiting.count_down();
              return here;
            },
            seconds(600));
      } catch (const c10::DistError&) {
        ++failed;
      }
    });
  waiting.wait();
  served.reset();
  waiters.clear();
  EXPECT_EQ(failed.load(), 3);
  EXPECT_TRUE(shared->is_lost());
}

TEST(SharedStore, CommunicatorsOpenNoConnectionToTheStoreOfTheProgram) {
  const StorePtr served = tcp_store(0, true);
  const StorePtr client = tcp_store(port_of(served), false);
  const int before = connections_to(port_of(served));
  std::vector<StorePtr> kept;
  for (int i = 0; i < 40; ++i) {
    CommOptions options = with_store(client);
    options.hints["persistent_store"] = "true";
    std::jthread other([&, i] {
      const auto met = rendezvous(launch(1, 2), "n" + std::to_string(i), options);
      EXPECT_EQ(met.size, 2);
    });
    kept.push_back(rendezvous(launch(0, 2), "n" + std::to_string(i), options).store);
  }
  EXPECT_EQ(connections_to(port_of(served)), before);
}

TEST(SharedStore, PrivateStoresOfAProcessAreOneServer) {
  const StorePtr served = tcp_store(0, true);
  std::set<std::string> addresses;
  std::vector<Rendezvous> kept;
  for (int i = 0; i < 5; ++i) {
    const auto outcomes = together({0, 1}, [&](int rank) {
      return rendezvous(launch(rank, 2), "n" + std::to_string(i), with_store(served));
    });
    expect_one_store(outcomes, "n" + std::to_string(i));
    addresses.insert(outcomes[1].result->address);
    for (const auto& outcome : outcomes) kept.push_back(*outcome.result);
  }
  EXPECT_EQ(addresses.size(), 1U);
  const auto port = addresses.begin()->substr(addresses.begin()->rfind(':') + 1);
  // Rank 0's, and one that the other rank opened: here both are this process.
  EXPECT_EQ(connections_to(static_cast<uint16_t>(std::stoi(port))), 2);
}

TEST(SharedStore, AConnectionThatTheProgramWaitsOnIsReplaced) {
  const StorePtr served = tcp_store(0, true);
  const StorePtr client = tcp_store(port_of(served), false);
  std::jthread program([&] { client->wait({"from the program"}, seconds(60)); });
  // The wait holds the connection once a second operation on it does not return.
  const auto shared = SharedStore::of(client);
  while (shared->run([](c10d::Store& s) { return s.check({"x"}) || true; }, milliseconds(0)) ==
         Outcome::kDone)
    std::this_thread::yield();
  const auto outcomes = together({0, 1, 2}, [&](int rank) {
    return rendezvous(launch(rank, 3), "x", with_store(rank == 0 ? client : served));
  });
  expect_one_store(outcomes, "x");
  EXPECT_EQ(connections_to(port_of(served)), 3) << "the server's own, the program's, ours";
  served->set("from the program", std::string("go on"));
}

TEST(SharedStore, AStoreThatIsSlowIsWaitedFor) {
  const StoreProcess server;
  const auto shared = SharedStore::of(tcp_store(server.port(), false));
  EXPECT_EQ(shared->run(waits_for("k"), milliseconds(0)), Outcome::kTimedOut);
  server.signal(SIGSTOP);
  std::jthread resume([&] {
    // Longer than any patience with a connection: only the caller's own limit counts.
    while (shared->busy_for() < milliseconds(1500)) std::this_thread::yield();
    server.signal(SIGCONT);
  });
  StoreKeyValue kv(shared->root(), Deadline(seconds(60)), {});
  kv.set("k", "v");
  EXPECT_EQ(kv.get("k", seconds(60)), "v");
}

TEST(SharedStore, IsReleasedWithTheLastReference) {
  StorePtr served = tcp_store(0, true);
  const uint16_t port = port_of(served);
  PolledStore(SharedStore::of(served)).set("k", {1});
  served.reset();
  EXPECT_NO_THROW(tcp_store(port, true)) << "the port is still taken";
}

TEST(SharedStore, ConnectionsByAddressAreOne) {
  const StorePtr served = tcp_store(0, true);
  const auto connect = [&] {
    return SharedStore::connect("127.0.0.1", port_of(served), seconds(10), Deadline(seconds(20)),
                                {});
  };
  const auto first = connect();
  EXPECT_EQ(connect(), first);
}

TEST(SharedStore, AConnectionThatIsLostIsOpenedAnew) {
  StorePtr served = tcp_store(0, true);
  const uint16_t port = port_of(served);
  const auto connect = [&] {
    return SharedStore::connect("127.0.0.1", port, seconds(10), Deadline(seconds(20)), {});
  };
  const auto first = connect();
  served.reset();
  EXPECT_THROW(PolledStore(first).check({"k"}), c10::DistError);
  served = tcp_store(port, true);
  const auto second = connect();
  EXPECT_NE(second, first);
  EXPECT_FALSE(PolledStore(second).check({"k"}));
}

TEST(PolledStore, DoesWhatTheStoreDoes) {
  const auto hash = c10::make_intrusive<c10d::HashStore>();
  const auto store = c10::make_intrusive<PolledStore>(SharedStore::of(hash));
  const auto bytes = [](const std::string& text) {
    return std::vector<uint8_t>(text.begin(), text.end());
  };
  store->set("a", bytes("1"));
  EXPECT_EQ(store->get("a"), bytes("1"));
  store->append("a", bytes("2"));
  EXPECT_EQ(hash->get_to_str("a"), "12");
  EXPECT_EQ(store->compareSet("a", bytes("12"), bytes("3")), bytes("3"));
  store->multiSet({"b", "c"}, {bytes("4"), bytes("5")});
  EXPECT_EQ(store->multiGet({"b", "c"}), (std::vector{bytes("4"), bytes("5")}));
  EXPECT_EQ(store->add("n", 3), 3);
  EXPECT_TRUE(store->deleteKey("b"));
  EXPECT_FALSE(store->check({"b"}));
  EXPECT_EQ(store->clone()->get("c"), bytes("5"));
  EXPECT_THROW(store->wait({"b"}, milliseconds(10)), c10::DistStoreError);
}

}  // namespace
}  // namespace torch::comms
