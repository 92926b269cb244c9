// The exchange over real sockets: ranks are threads, other programs connect meanwhile.

#include "bootstrap/address_exchange/blob_exchange.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "base/net/socket.hpp"
#include "base/no_descriptors.hpp"
#include "base/os/host.hpp"
#include "bootstrap/address_exchange/connector.hpp"
#include "bootstrap/memory_kv.hpp"
#include "bootstrap/silent_place.hpp"

namespace torch::comms::bootstrap {
namespace {

using std::chrono::milliseconds;

struct Outcome {
  BlobExchangeResult got;
  std::optional<CommError> error;
  int messages = 0;  // at the store
};

BlobExchangeParams participant(int rank, int size, milliseconds limit) {
  return {.key_scope = "s",
          .name = "world",
          .rank = rank,
          .size = size,
          .blob = "blob of " + std::to_string(rank),
          .timeout = {limit, "SOME_LIMIT"},
          .deadline = Deadline(limit),
          .interface = "127.0.0.1"};
}

Outcome take_part(SharedMap& map, const BlobExchangeParams& self) {
  Outcome outcome;
  MemoryKeyValue store(map);
  try {
    outcome.got = exchange_blobs(store, self);
  } catch (const CommError& e) {
    outcome.error = e;
  }
  outcome.messages = store.messages;
  return outcome;
}

// All ranks but those left out; `beside` runs in a thread of its own.
std::vector<Outcome> meet(int size, milliseconds limit, const std::vector<int>& left_out = {},
                          const std::function<void(SharedMap&, std::atomic<bool>&)>& beside = {},
                          const PendingConnections::Options& rules = {}) {
  SharedMap map;
  std::atomic<bool> over = false;
  std::vector<Outcome> outcomes(static_cast<size_t>(size));
  std::jthread other;
  if (beside) other = std::jthread([&] { beside(map, over); });
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      if (std::ranges::find(left_out, rank) != left_out.end()) continue;
      ranks.emplace_back([&, rank] {
        auto self = participant(rank, size, limit);
        self.pending_options = rules;
        outcomes[static_cast<size_t>(rank)] = take_part(map, self);
      });
    }
  }
  over = true;
  return outcomes;
}

void expect_all_know_all(const std::vector<Outcome>& outcomes) {
  for (const auto& outcome : outcomes) {
    ASSERT_FALSE(outcome.error) << outcome.error->what();
    ASSERT_EQ(outcome.got.blobs.size(), outcomes.size());
    for (size_t rank = 0; rank < outcomes.size(); ++rank)
      ASSERT_EQ(outcome.got.blobs[rank], "blob of " + std::to_string(rank));
  }
}

TEST(Meeting, EverybodyKnowsEverybody) {
  for (int size = 1; size <= 16; ++size) {
    const auto outcomes = meet(size, milliseconds(30'000));
    ASSERT_NO_FATAL_FAILURE(expect_all_know_all(outcomes)) << size << " ranks";
    for (const auto& outcome : outcomes) {
      EXPECT_LE(outcome.messages, 3) << "its secret, its contact, its neighbour's";
      EXPECT_LE(outcome.got.frames, (2 * BruckRounds{0, size}.count()));
      EXPECT_EQ(outcome.got.dropped, "");
    }
  }
}

TEST(Meeting, MeetsOverIpv6) {
  const auto all = base::interface_addresses();
  if (std::ranges::find(all, "::1", &base::InterfaceAddress::address) == all.end())
    GTEST_SKIP() << "this machine has no address ::1";
  SharedMap map;
  std::vector<Outcome> outcomes(4);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.emplace_back([&, rank] {
        auto self = participant(rank, 4, milliseconds(30'000));
        self.interface = "::1";
        outcomes[static_cast<size_t>(rank)] = take_part(map, self);
      });
  }
  EXPECT_TRUE(map.values["s/contact/0"].starts_with("[::1]:"));
  expect_all_know_all(outcomes);
}

// As where every host has a network of its own, whose address comes first.
class FirstAddressSilent final : public KeyValueStore {
 public:
  FirstAddressSilent(SharedMap& map, std::string silent)
      : store_(map), silent_(std::move(silent)) {}
  void set(const std::string& key, const std::string& value) override {
    store_.set(key, key.find("/contact/") == std::string::npos ? value : silent_ + " " + value);
  }
  std::string get(const std::string& key, milliseconds limit) override {
    return store_.get(key, limit);
  }
  bool has(const std::vector<std::string>& keys) override { return store_.has(keys); }
  int64_t add(const std::string& key, int64_t amount) override { return store_.add(key, amount); }
  void remove(const std::string& key) override { store_.remove(key); }
  std::string address() const override { return store_.address(); }

 private:
  MemoryKeyValue store_;
  std::string silent_;
};

TEST(Meeting, GoesOnWithTheNextAddressWhereOneIsSilent) {
  constexpr int kSize = 5;
  const SilentPlace silent;
  SharedMap map;
  std::vector<Outcome> outcomes(kSize);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kSize; ++rank)
      ranks.emplace_back([&, rank] {
        auto self = participant(rank, kSize, milliseconds(30'000));
        self.retry_policy.connect_timeout = milliseconds(100);
        FirstAddressSilent store(map, silent.address());
        auto& outcome = outcomes[static_cast<size_t>(rank)];
        try {
          outcome.got = exchange_blobs(store, self);
        } catch (const CommError& e) {
          outcome.error = e;
        }
      });
  }
  expect_all_know_all(outcomes);
}

TEST(Meeting, LargeBlobsOfManySizesArriveWhole) {
  SharedMap map;
  constexpr int kSize = 16;
  const auto blob = [](int rank) {
    return std::string(rank % 3 == 0 ? 0 : kMaxBlobBytes - static_cast<size_t>(rank),
                       static_cast<char>('a' + rank));
  };
  std::vector<Outcome> outcomes(kSize);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kSize; ++rank)
      ranks.emplace_back([&, rank] {
        auto self = participant(rank, kSize, milliseconds(30'000));
        self.blob = blob(rank);
        self.secret = base::Secret{};
        outcomes[static_cast<size_t>(rank)] = take_part(map, self);
      });
  }
  for (const auto& outcome : outcomes) {
    ASSERT_FALSE(outcome.error) << outcome.error->what();
    for (int rank = 0; rank < kSize; ++rank)
      ASSERT_EQ(outcome.got.blobs[static_cast<size_t>(rank)], blob(rank));
  }
}

// Waits for the contact of a rank as another rank would; nothing when the exchange is over first.
std::optional<base::SocketAddress> address_of(SharedMap& map, int rank, std::atomic<bool>& over) {
  MemoryKeyValue store(map);
  while (!over) {
    try {
      return base::parse_address(store.get("s/contact/" + std::to_string(rank), milliseconds(100)));
    } catch (const CommError&) {
      // Not there yet.
    }
  }
  return std::nullopt;
}

base::FileDescriptor connect_and_send(const base::SocketAddress& address, std::string_view bytes) {
  base::FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), address.get(), address.size) != 0) return {};
  static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  return socket;
}

// Rank 1 comes only when the strangers have been there, so that rank 0 must live through them all.
TEST(Meeting, PortScansOtherJobsAndSilenceDoNotDisturb) {
  constexpr int kSize = 3;
  SharedMap map;
  std::atomic<bool> over = false;
  std::vector<Outcome> outcomes(kSize);
  const auto join = [&](int rank) {
    return std::jthread([&, rank] {
      auto self = participant(rank, kSize, milliseconds(30'000));
      self.pending_options = {.max_connections = 16, .handshake_timeout = milliseconds(5'000)};
      outcomes[static_cast<size_t>(rank)] = take_part(map, self);
    });
  };
  std::vector<std::jthread> ranks;
  ranks.push_back(join(0));
  ranks.push_back(join(2));
  // Rank 2 has rank 0's contact, and its own: it is busy asking and being asked.
  const auto address = address_of(map, 2, over);
  ASSERT_TRUE(address);
  std::mt19937 random(3);
  std::vector<base::FileDescriptor> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connect_and_send(*address, "T"));
  for (int i = 0; i < 50; ++i) connect_and_send(*address, "");
  for (int i = 0; i < 50; ++i) {
    std::string noise(1 + random() % 500, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    connect_and_send(*address, noise);
  }
  connect_and_send(*address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  connect_and_send(*address, std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11));
  ExchangeFrame wrong;
  wrong.from = 1;
  wrong.to = 2;
  wrong.size = kSize;
  wrong.job.fill(std::byte{1});
  connect_and_send(*address, {reinterpret_cast<const char*>(&wrong), sizeof wrong});
  ranks.push_back(join(1));
  ranks.clear();
  ASSERT_NO_FATAL_FAILURE(expect_all_know_all(outcomes));
  const auto& dropped = outcomes[2].got.dropped;
  EXPECT_NE(dropped.find("unknown protocol"), std::string::npos) << dropped;
  EXPECT_NE(dropped.find("1 of another job"), std::string::npos) << dropped;
  EXPECT_NE(dropped.find("too many at once"), std::string::npos) << dropped;
}

TEST(Meeting, ThoseWhoDoNotComeAreNamedWithTheLimitAndWhatToRaise) {
  const auto start = Deadline::Clock::now();
  const auto outcomes = meet(6, milliseconds(400), {2, 4});
  EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(5));
  for (const int rank : {0, 1, 3, 5}) {
    const auto& error = outcomes[static_cast<size_t>(rank)].error;
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::kTimeout);
    for (const char* part : {"exchanging addresses", "ranks 2, 4 of 6 did not arrive", "0.4 s",
                             "raise SOME_LIMIT", "memory"})
      EXPECT_NE(error->why().find(part), std::string::npos) << part << " in " << error->why();
  }
}

TEST(Meeting, WithoutRankZeroTheSecretIsMissingAndSoIsSaid) {
  const auto outcomes = meet(3, milliseconds(200), {0});
  for (const int rank : {1, 2}) {
    const auto& error = outcomes[static_cast<size_t>(rank)].error;
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::kTimeout);
    EXPECT_NE(error->why().find("secret"), std::string::npos) << error->why();
  }
}

// A rank that published where it listens, and ended.
TEST(Meeting, ARankThatEndedIsNamedLongBeforeTheLimit) {
  constexpr int kSize = 7, kVictim = 3;
  const auto start = Deadline::Clock::now();
  const auto outcomes =
      meet(kSize, milliseconds(60'000), {kVictim}, [](SharedMap& map, std::atomic<bool>&) {
        uint16_t port = 0;
        {
          const auto listener = base::listen_on_all_interfaces(port);
        }
        MemoryKeyValue(map).set("s/contact/3", base::format_address("127.0.0.1", port));
      });
  EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(10));
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == kVictim) continue;
    const auto& error = outcomes[static_cast<size_t>(rank)].error;
    ASSERT_TRUE(error) << "rank " << rank << " knows all, without rank " << kVictim;
    EXPECT_EQ(error->code(), Errc::kPeerFailed) << error->what();
    EXPECT_EQ(error->context().peer, kVictim) << error->what();
  }
}

// All but `failed`, where `fail` runs; they hear why it does not take part long before the limit.
void expect_notified(int failed,
                     const std::function<CommError(SharedMap&, const BlobExchangeParams&)>& fail,
                     const std::string& why) {
  constexpr int kSize = 6;
  constexpr milliseconds kLimit{60'000};
  const auto start = Deadline::Clock::now();
  const auto outcomes = meet(kSize, kLimit, {failed}, [&](SharedMap& map, std::atomic<bool>&) {
    const auto error = fail(map, participant(failed, kSize, kLimit));
    EXPECT_NE(error.why().find(why), std::string::npos) << error.why();
  });
  EXPECT_LT(Deadline::Clock::now() - start, kLimit / 2);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == failed) continue;
    const auto& outcome = outcomes[static_cast<size_t>(rank)];
    ASSERT_TRUE(outcome.error) << "rank " << rank << " knows all, without rank " << failed;
    EXPECT_EQ(outcome.error->code(), Errc::kPeerFailed) << outcome.error->what();
    EXPECT_EQ(outcome.error->context().peer, failed) << outcome.error->what();
    const auto text = "rank " + std::to_string(failed) + " cannot connect: " + why;
    EXPECT_NE(outcome.error->why().find(text), std::string::npos) << outcome.error->why();
    EXPECT_LE(outcome.messages, 12) << "at the store, however many ranks there are";
  }
}

TEST(Meeting, WhyARankDeclinesIsToldToThoseThatWaitForIt) {
  for (const int rank : {0, 3})
    ASSERT_NO_FATAL_FAILURE(expect_notified(
        rank,
        [](SharedMap& map, const BlobExchangeParams& self) {
          MemoryKeyValue store(map);
          const CommError error(Errc::kUnsupported, "it has no such link");
          decline_exchange(store, self, error);
          return error;
        },
        "it has no such link"));
}

TEST(Meeting, WhyARankCannotListenIsToldToThoseThatWaitForIt) {
  for (const int rank : {0, 3})
    ASSERT_NO_FATAL_FAILURE(expect_notified(
        rank,
        [](SharedMap& map, BlobExchangeParams self) {
          self.interface = "eth77";
          return take_part(map, self).error.value();
        },
        "no interface"));
}

TEST(Meeting, WhatARankWasToWriteLeadsToWhyItDeclines) {
  SharedMap map;
  MemoryKeyValue store(map);
  const auto failed = participant(0, 2, milliseconds(60'000));
  std::jthread other([&map] {
    MemoryKeyValue store(map);
    const auto self = participant(1, 2, milliseconds(60'000));
    try {
      read_peer_key(store, self, "job", self.timeout.duration);
      ADD_FAILURE() << "there is none";
    } catch (const CommError& e) {
      EXPECT_EQ(e.context().peer, 0);
      EXPECT_NE(e.why().find("it has no file"), std::string::npos) << e.why();
      decline_exchange(store, self, e);
    }
  });
  decline_exchange(store, failed, {Errc::kInvalidArgument, "it has no file"}, {"job"});
}

// Rank 1 has said where it listens and does not any more; rank 0, which tries again and again, runs
// out of descriptors.
TEST(Meeting, ARankWithoutDescriptorsSaysSo) {
  SharedMap map;
  {
    uint16_t port = 0;
    const auto listener = base::listen_on_all_interfaces(port);
    MemoryKeyValue(map).set("s/contact/1", base::format_address("127.0.0.1", port));
  }
  std::optional<base::NoDescriptors> none;
  std::vector<base::FileDescriptor> taken;  // that were given back since
  auto self = participant(0, 2, milliseconds(60'000));
  self.retry_policy.max_refusals = 255;
  self.interrupt_check = [&] {
    if (!none) none.emplace();
    for (int next = ::dup(0); next >= 0; next = ::dup(0)) taken.emplace_back(next);
  };
  const auto error = take_part(map, self).error.value();
  none.reset();
  EXPECT_EQ(error.code(), Errc::kResourceExhausted) << error.what();
  EXPECT_NE(error.why().find("no descriptor left"), std::string::npos) << error.why();
  const auto notice = parse_notice(map.values["s/verdict"], 2).value();
  EXPECT_EQ(notice.code, Errc::kPeerFailed);
  EXPECT_EQ(notice.peer, 0);
  EXPECT_NE(notice.reason.find("no descriptor left"), std::string::npos) << notice.reason;
}

TEST(Dial, SaysWhatThisProcessLacks) {
  uint16_t port = 0;
  const auto listener = base::listen_on_all_interfaces(port);
  const auto address = base::format_address("127.0.0.1", port);
  {
    const base::NoDescriptors none;
    const Connector dial(address + " " + address);
    EXPECT_EQ(dial.state(), Connector::State::kFailed);
    EXPECT_EQ(dial.error(), EMFILE);
    EXPECT_FALSE(dial.is_refused());
  }
  EXPECT_EQ(Connector(address).state(), Connector::State::kConnecting);
}

TEST(Meeting, TwoProcessesOfOneRankAreToldSo) {
  constexpr int kSize = 2;
  SharedMap map;
  std::vector<Outcome> outcomes(3);
  {
    std::vector<std::jthread> ranks;
    for (const int i : {0, 1, 2})
      ranks.emplace_back([&, i] {
        // Both "rank 1" ask rank 0, which listens until both of its contacts have been heard.
        auto self = participant(i == 2 ? 1 : i, kSize, milliseconds(3'000));
        outcomes[static_cast<size_t>(i)] = take_part(map, self);
      });
  }
  // Whoever of the two came second has failed, for one reason or the other, and within the limit.
  EXPECT_TRUE(outcomes[1].error || outcomes[2].error);
}

TEST(Meeting, ImpossibleArgumentsAreRefusedAtOnce) {
  SharedMap map;
  auto self = participant(2, 2, milliseconds(1000));
  EXPECT_EQ(take_part(map, self).error->code(), Errc::kInvalidArgument);
  self = participant(0, 0, milliseconds(1000));
  EXPECT_EQ(take_part(map, self).error->code(), Errc::kInvalidArgument);
  self = participant(0, 2, milliseconds(1000));
  self.blob = std::string(kMaxBlobBytes + 1, 'x');
  EXPECT_EQ(take_part(map, self).error->code(), Errc::kTooLarge);
}

TEST(Meeting, ALostStoreIsSaidSo) {
  SharedMap map;
  MemoryKeyValue store(map);
  store.lost_after = 2;
  try {
    exchange_blobs(store, participant(0, 2, milliseconds(5'000)));
    FAIL();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kPeerFailed);
    EXPECT_NE(e.why().find("lost the store memory"), std::string::npos) << e.why();
  }
}

}  // namespace
}  // namespace torch::comms::bootstrap
