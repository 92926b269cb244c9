#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <random>

#include "base/os/handles.hpp"
#include "transport/connect/peer_connection.hpp"
#include "transport/processes.hpp"
#include "transport/protocol/protocol_thresholds.hpp"
#include "transport/shm/cma.hpp"
#include "transport/shm/shm_transport.hpp"

// Messages that their receiver copies out of the sender's memory.
namespace torch::comms::transport::test {
namespace {

Link shm(int ranks) {
  return {"shm", ranks,
          [](const TransportOptions& options) { return shm::make_shm_transport({options}); }};
}

using Path = CopyPathTuner::CopyPath;

struct MessageBuffer {
  explicit MessageBuffer(size_t size) : bytes(size) {}
  explicit MessageBuffer(std::vector<std::byte> data) : bytes(std::move(data)) {}
  std::vector<std::byte> bytes;
  Request request;
};

struct TestSink final : ReceiveSink {
  std::vector<std::byte> bytes;
  uint64_t bytes_consumed = 0;
  void consume(uint64_t offset, ConstBytes chunk) noexcept override {
    std::memcpy(bytes.data() + offset, chunk.data(), chunk.size());
    bytes_consumed += chunk.size();
  }
};

bool can_copy(const Transport& link) { return link.capabilities().has_single_copy; }

TEST(Offer, TravelsAsItIsAndALengthThatDoesNotFitIsRefused) {
  for (size_t count = 1; count <= RemoteReadDescriptor::kMaxSegments; ++count) {
    RemoteReadDescriptor offer{
        .slot = 63, .region = 7, .word = 9, .path = Path::kCopyInOut, .count = count};
    uint64_t length = 0;
    for (size_t i = 0; i < count; ++i) {
      offer.segments[i] = {100 + i, 10 * (i + 1)};
      length += offer.segments[i].bytes;
    }
    const RemoteReadDescriptor::Payload payload(offer);
    EXPECT_EQ(payload.bytes().size(), 16 * count + 8);
    const auto back = RemoteReadDescriptor::parse(payload.bytes(), length);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->slot, 63u);
    EXPECT_EQ(back->region, 7u);
    EXPECT_EQ(back->word, 9u);
    EXPECT_EQ(back->path, Path::kCopyInOut);
    ASSERT_EQ(back->count, count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(back->segments[i].address, offer.segments[i].address);
      EXPECT_EQ(back->segments[i].bytes, offer.segments[i].bytes);
    }
    if (count > 1) {
      EXPECT_FALSE(RemoteReadDescriptor::parse(payload.bytes(), 9));
    }
    EXPECT_FALSE(RemoteReadDescriptor::parse(payload.bytes().first(16), length));
    auto odd = offer;
    odd.slot = ReadValidityWords::kSlots;
    EXPECT_FALSE(RemoteReadDescriptor::parse(RemoteReadDescriptor::Payload(odd).bytes(), length));
    odd = offer;
    for (const int path : {2, 0xff}) {
      odd.path = static_cast<Path>(path);
      EXPECT_FALSE(RemoteReadDescriptor::parse(RemoteReadDescriptor::Payload(odd).bytes(), length));
    }
    odd.path.reset();
    EXPECT_FALSE(
        RemoteReadDescriptor::parse(RemoteReadDescriptor::Payload(odd).bytes(), length)->path);
  }
}

TEST(Offer, StandsUntilItIsWithdrawnAndItsSlotIsUsedAgain) {
  const auto words = std::make_shared<ReadValidityWords::Words>();
  ReadValidityWords validity_words(words, *words);
  std::vector<ReadValidityWords::ValiditySlot> acquired;
  while (const auto one = validity_words.acquire()) acquired.push_back(*one);
  ASSERT_EQ(acquired.size(), ReadValidityWords::kSlots);
  for (const auto& one : acquired)
    EXPECT_TRUE(ReadValidityWords::is_valid(*words, one.slot, one.word));
  const auto released = acquired[3], withdrawn = acquired[5];
  validity_words.release(released.slot);
  const auto next = validity_words.acquire();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->slot, released.slot);
  EXPECT_EQ(next->word, released.word);  // nobody reads the first one any more
  validity_words.invalidate(withdrawn.slot);
  EXPECT_FALSE(ReadValidityWords::is_valid(*words, withdrawn.slot, withdrawn.word));
  const auto other = validity_words.acquire();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->slot, withdrawn.slot);
  EXPECT_TRUE(ReadValidityWords::is_valid(*words, other->slot, other->word));
  EXPECT_FALSE(ReadValidityWords::is_valid(*words, withdrawn.slot, withdrawn.word));
  EXPECT_FALSE(validity_words.acquire());
}

// A child has the words of its parent before it, not its offers.
TEST(Offer, OfAParentIsNotWithdrawnByItsChild) {
  auto* shared = ::mmap(nullptr, sizeof(ReadValidityWords::Words), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const auto memory =
      std::make_shared<const base::Mapping>(shared, sizeof(ReadValidityWords::Words));
  auto& words = *new (shared) ReadValidityWords::Words{};
  ReadValidityWords validity_words(memory, words);
  const auto acquired = validity_words.acquire();
  ASSERT_TRUE(acquired);
  const pid_t child = ::fork();
  if (child == 0) {
    validity_words.invalidate(acquired->slot);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(ReadValidityWords::is_valid(words, acquired->slot, acquired->word));
}

TEST(Offer, IsCopiedFromWhereItSaysAsFarAsThatCanBeRead) {
  if (!shm::is_cma_available()) GTEST_SKIP() << "copies between processes are not allowed here";
  auto bytes = pattern(0, 0, 1, 10'000);
  RemoteReadDescriptor offer{.count = 2};
  offer.segments[0] = {reinterpret_cast<uint64_t>(bytes.data()), 3000};
  offer.segments[1] = {reinterpret_cast<uint64_t>(bytes.data() + 3000), 7000};
  std::vector<std::byte> into(5000);
  const Bytes halves[] = {Bytes(into).first(1234), Bytes(into).subspan(1234)};
  EXPECT_EQ(shm::cma_read_message(::getpid(), offer, 1000, halves), shm::CmaResult::kDone);
  EXPECT_TRUE(std::equal(into.begin(), into.end(), bytes.begin() + 1000));
  auto* hole = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  const base::Mapping mapping(hole, 4096);
  offer.segments[1].address = reinterpret_cast<uint64_t>(hole);
  EXPECT_EQ(shm::cma_read_message(::getpid(), offer, 1000, halves), shm::CmaResult::kUnreadable);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(shm::cma_read_message(child, offer, 0, halves), shm::CmaResult::kPeerExited);
}

// As many as there can be, and those that are sent because there are more.
TEST(Offer, MoreThanCanStandAtOnceAllArrive) {
  static constexpr size_t kMessages = ReadValidityWords::kSlots + 9, kSize = 100'000;
  run(shm(2), [](Rank& self) {
    const int peer = 1 - self.rank;
    self.barrier();
    std::deque<MessageBuffer> out, back;
    for (size_t i = 0; i < kMessages; ++i) {
      auto& message = out.emplace_back(pattern(self.rank, peer, i, kSize));
      self.link.send(message.request, peer, 1, message.bytes);
    }
    for (size_t i = 0; i < kMessages; ++i) {
      auto& message = back.emplace_back(kSize);
      self.link.receive(message.request, peer, 1, message.bytes);
    }
    for (size_t i = 0; i < kMessages; ++i) {
      self.wait(back[i].request);
      self.wait(out[i].request);
      EXPECT_TRUE(back[i].bytes == pattern(peer, self.rank, i, kSize)) << i;
    }
    self.barrier();
  });
}

TEST(Offer, ASendIsDoneOnceItsReceiverHasCopiedIt) {
  MessageBuffer out(pattern(0, 1, 1, 3'000'000)), back(3'000'000);
  const auto links = make_links(shm(2));
  if (!can_copy(*links[0])) GTEST_SKIP() << links[0]->capabilities().reason;
  const auto step = [&] { links[0]->progress(), links[1]->progress(); };
  for (const auto deadline = in(kLong);
       links[0]->state(1) != PeerState::kReady || links[1]->state(0) != PeerState::kReady;) {
    step();
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  links[0]->send(out.request, 1, 1, out.bytes);
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_FALSE(out.request.is_done());
  links[1]->receive(back.request, 0, 1, back.bytes);
  for (const auto deadline = in(kLong); !out.request.is_done();) {
    step();
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_TRUE(out.request.is_ok() && back.request.is_ok());
  EXPECT_TRUE(back.bytes == out.bytes);
}

// What the memory holds after the send was ended is handed to nobody.
TEST(Offer, ThatWasTakenBackIsNeverReceived) {
  for (const bool receive_first : {true, false}) {
    MessageBuffer out(pattern(0, 1, 1, 3'000'000)), back(3'000'000);
    const auto links = make_links(shm(2));
    if (!can_copy(*links[0])) GTEST_SKIP() << links[0]->capabilities().reason;
    if (receive_first) links[1]->receive(back.request, 0, 1, back.bytes);
    links[0]->send(out.request, 1, 1, out.bytes);
    for (int i = 0; i < 2000 && back.request.bytes() == 0; ++i)
      links[0]->progress(), links[1]->progress();
    links[0]->close_streams(1, 1, Errc::kAborted);
    const uint64_t before = back.request.bytes();
    EXPECT_EQ(before > 0, receive_first);
    EXPECT_LT(before, out.bytes.size());
    std::fill(out.bytes.begin(), out.bytes.end(), std::byte{0xa5});
    if (!receive_first) links[1]->receive(back.request, 0, 1, back.bytes);
    for (int i = 0; i < 2000; ++i) links[0]->progress(), links[1]->progress();
    EXPECT_FALSE(back.request.is_done());
    EXPECT_EQ(back.request.bytes(), before);
    links[1]->close_streams(1, 1, Errc::kAborted);
    EXPECT_TRUE(back.request.is_done() && !back.request.is_ok());
  }
}

// Copies that were asked for, by the process; each channel lets some through, then refuses them.
struct Copies {
  int allowed = 1'000'000;
  std::atomic<int> attempted{0}, done{0};
  std::atomic<uint64_t> viewed{0};  // bytes seen in a peer's own memory
};

class CountedChannel final : public PeerConnection {
 public:
  CountedChannel(std::unique_ptr<PeerConnection> inner, Copies& copies)
      : inner_(std::move(inner)), copies_(copies), allowed_(copies.allowed) {}
  uint32_t max_payload() const noexcept override { return inner_->max_payload(); }
  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t* frames_in_use) noexcept override {
    return inner_->try_send(frame, payload, frames_in_use);
  }
  ReceiveStatus receive(FrameSink& sink) noexcept override { return inner_->receive(sink); }
  const std::string& error_text() const noexcept override { return inner_->error_text(); }
  bool supports_remote_read() const noexcept override { return true; }
  std::shared_ptr<ReadValidityWords> read_validity_words() noexcept override {
    return inner_->read_validity_words();
  }
  RemoteReadStatus remote_read(const RemoteReadDescriptor& offer, uint64_t offset,
                               std::span<const Bytes> into, bool past_caches) noexcept override {
    ++copies_.attempted;
    if (allowed_-- <= 0) return RemoteReadStatus::kRefused;
    const auto end = inner_->remote_read(offer, offset, into, past_caches);
    if (end == RemoteReadStatus::kDone) ++copies_.done;
    return end;
  }
  bool maps_peer_memory() const noexcept override { return inner_->maps_peer_memory(); }
  ConstBytes map_view(const RemoteReadDescriptor& offer, uint64_t offset,
                      uint64_t most) noexcept override {
    const auto part = inner_->map_view(offer, offset, most);
    copies_.viewed += part.size();
    return part;
  }
  bool prepare_sleep(bool wants_room) noexcept override {
    return inner_->prepare_sleep(wants_room);
  }
  void finish_sleep() noexcept override { inner_->finish_sleep(); }
  void wake_peer() noexcept override { inner_->wake_peer(); }

 private:
  std::unique_ptr<PeerConnection> inner_;
  Copies& copies_;
  int allowed_;
};

void run_counted(Copies& copies, const std::function<void(Rank&)>& body) {
  run(shm(2), body, [&copies](TransportOptions& options) {
    options.wrap_connection = [&copies](int, std::unique_ptr<PeerConnection> inner) {
      return std::make_unique<CountedChannel>(std::move(inner), copies);
    };
  });
}

TEST(Offer, WhatCannotBeCopiedAnyMoreIsSent) {
  if (!shm::is_cma_available()) GTEST_SKIP() << "copies between processes are not allowed here";
  for (const int allowed : {0, 1, 3, 5}) {  // of three that a message takes
    Copies copies{.allowed = allowed};
    run_counted(copies, [](Rank& self) {
      const size_t size = 3'000'001;
      const int peer = 1 - self.rank;
      self.barrier();
      for (uint64_t i = 0; i < 3; ++i) {
        MessageBuffer out(pattern(self.rank, peer, i, size)), back(size);
        const ConstBytes pieces[] = {ConstBytes(out.bytes).first(64 * 1001),
                                     ConstBytes(out.bytes).subspan(64 * 1001)};
        self.link.receive(back.request, peer, 1, back.bytes);
        self.link.send(out.request, peer, 1, pieces);
        self.wait(out.request);
        self.wait(back.request);
        EXPECT_TRUE(back.bytes == pattern(peer, self.rank, i, size));
      }
      self.barrier();
    });
    EXPECT_EQ(copies.done, 2 * allowed);
    EXPECT_GT(copies.attempted, copies.done);
  }
}

// One message each way, whose announcement comes before its receive if `late`.
void exchange(Rank& self, size_t size, bool consumed, bool late) {
  const int peer = 1 - self.rank;
  MessageBuffer out(pattern(self.rank, peer, size, size)), back(size);
  TestSink sink;
  sink.bytes.resize(size);
  MessageBuffer word(8), answer(8);
  const auto receive = [&] {
    if (consumed)
      self.link.receive(back.request, peer, 1, size, sink);
    else
      self.link.receive(back.request, peer, 1, back.bytes);
  };
  self.barrier();  // a link that is not there yet copies nothing
  if (!late) receive();
  self.link.send(out.request, peer, 1, out.bytes);
  self.link.receive(answer.request, peer, 2, answer.bytes);
  self.link.send(word.request, peer, 2, word.bytes);  // after the announcement, in the same ring
  self.wait(answer.request);
  if (late) receive();
  self.wait(out.request);
  self.wait(back.request);
  self.wait(word.request);
  EXPECT_TRUE((consumed ? sink.bytes : back.bytes) == pattern(peer, self.rank, size, size));
  EXPECT_EQ(sink.bytes_consumed, consumed ? size : 0);
  self.barrier();
}

// Exchanges of large messages between two ranks that have a core each, so many bytes from either;
// which of them were fetched, by receiver.
class Exchanges {
 public:
  static constexpr int kNumber = 40;
  using Fetched = std::array<bool, kNumber>;

  explicit Exchanges(std::array<size_t, 2> bytes) {
    run(
        shm(2), [&](Rank& self) { exchange_all(self, bytes); },
        [&](TransportOptions& options) {
          options.local_ranks = 1;
          options.wrap_connection = [&own = copies_[static_cast<size_t>(options.rank)]](
                                        int, std::unique_ptr<PeerConnection> inner) {
            return std::make_unique<CountedChannel>(std::move(inner), own);
          };
        });
  }
  const Fetched& by(int receiver) const { return fetched_[static_cast<size_t>(receiver)]; }
  // How often its way changed.
  int changes(int receiver) const {
    int number = 0;
    for (size_t i = 1; i < kNumber; ++i) number += by(receiver)[i] != by(receiver)[i - 1] ? 1 : 0;
    return number;
  }

 private:
  void exchange_all(Rank& self, std::array<size_t, 2> bytes) {
    const auto me = static_cast<size_t>(self.rank), peer = 1 - me;
    for (size_t i = 0; i < kNumber; ++i) {
      const int before = copies_[me].done;
      MessageBuffer out(pattern(self.rank, 1 - self.rank, i, bytes[me])), back(bytes[peer]);
      self.barrier();
      self.link.receive(back.request, 1 - self.rank, 1, back.bytes);
      self.link.send(out.request, 1 - self.rank, 1, out.bytes);
      self.wait(out.request);
      self.wait(back.request);
      self.barrier();
      EXPECT_TRUE(back.bytes == pattern(1 - self.rank, self.rank, i, bytes[peer]));
      fetched_[me][i] = copies_[me].done != before;
    }
  }

  std::array<Copies, 2> copies_;
  std::array<Fetched, 2> fetched_{};
};

// Whoever leads says how, tries the other way, and is followed.
TEST(Offer, MovesAsTheOneThatIsExchangedForIt) {
  if (!shm::is_cma_available()) GTEST_SKIP() << "copies between processes are not allowed here";
  const Exchanges exchanges({400'000, 400'000});
  EXPECT_EQ(exchanges.by(0), exchanges.by(1));
  EXPECT_GT(exchanges.changes(0), 0);
}

// The leader knows nothing of messages like those that it sends.
TEST(Offer, IsChosenByItsReceiverWhereWhatComesBackIsAnother) {
  if (!shm::is_cma_available()) GTEST_SKIP() << "copies between processes are not allowed here";
  const Exchanges exchanges({1'000'000, 300'000});
  EXPECT_GT(exchanges.changes(0), 0);
  EXPECT_GT(exchanges.changes(1), 0);
}

TEST(Offer, IsNotTakenForAConsumerWhichReadsTheChannelsMemory) {
  if (!shm::is_cma_available()) GTEST_SKIP() << "copies between processes are not allowed here";
  for (const bool late : {false, true})
    for (const size_t size : {size_t{100'000}, size_t{3'000'001}}) {
      Copies consumed, copied;
      run_counted(consumed, [&](Rank& self) { exchange(self, size, true, late); });
      EXPECT_EQ(consumed.attempted, 0) << size << (late ? ", late" : "");
      run_counted(copied, [&](Rank& self) { exchange(self, size, false, late); });
      EXPECT_GT(copied.done, 0) << size << (late ? ", late" : "");
    }
}

void send_one_way(Rank& self, size_t size) {
  MessageBuffer message(self.rank == 0 ? pattern(0, 1, size, size) : std::vector<std::byte>(size));
  self.barrier();
  if (self.rank == 0)
    self.link.send(message.request, 1, 1, message.bytes);
  else
    self.link.receive(message.request, 0, 1, message.bytes);
  self.wait(message.request);
  EXPECT_TRUE(message.bytes == pattern(0, 1, size, size));
  self.barrier();
}

TEST(Offer, OfAVeryLargeMessageIsTakenWhereBothSidesCopy) {
  if (!shm::is_cma_available()) GTEST_SKIP() << "copies between processes are not allowed here";
  for (const bool late : {false, true}) {
    Copies both;
    run_counted(both, [&](Rank& self) { exchange(self, kMaxInitialRemoteReadBytes, false, late); });
    EXPECT_EQ(both.done, 4 + 4) << (late ? "late" : "");
    // Whoever comes late to it may be the only one that still copies.
    run_counted(both,
                [&](Rank& self) { exchange(self, kMaxInitialRemoteReadBytes + 1, false, late); });
  }
  Copies fetched, copied_in_out;
  run_counted(fetched, [&](Rank& self) { send_one_way(self, kMaxInitialRemoteReadBytes); });
  EXPECT_EQ(fetched.done, 4);
  run_counted(copied_in_out,
              [&](Rank& self) { send_one_way(self, 2 * kMaxInitialRemoteReadBytes); });
  EXPECT_EQ(copied_in_out.attempted, 0);
}

// Messages of all sizes that go one way or both, before and after their receives, some of which
// have more room: whatever way each takes, as they learn what is fast, all arrive.
void exchange_at_random(Rank& self, uint64_t seed) {
  constexpr size_t kSizes[] = {20'000, 65'536, 65'537, 131'072, 131'073, 300'000, 1'500'000};
  const int peer = 1 - self.rank;
  std::mt19937_64 random(seed);
  for (uint64_t i = 0; i < 150; ++i) {
    const size_t size = kSizes[random() % std::size(kSizes)], room = size + random() % 2 * 100'000;
    const bool both = random() % 2 == 0, late = random() % 2 == 0;
    const bool sends = both || self.rank == 0, receives = both || self.rank == 1;
    MessageBuffer out(sends ? pattern(self.rank, peer, i, size) : std::vector<std::byte>()),
        back(room);
    MessageBuffer word(8), answer(8);
    if (receives && !late) self.link.receive(back.request, peer, 1, back.bytes);
    if (sends) self.link.send(out.request, peer, 1, out.bytes);
    self.link.receive(answer.request, peer, 2, answer.bytes);
    self.link.send(word.request, peer, 2, word.bytes);
    self.wait(answer.request);
    if (receives && late) self.link.receive(back.request, peer, 1, back.bytes);
    if (sends) self.wait(out.request);
    self.wait(word.request);
    if (!receives) continue;
    self.wait(back.request);
    ASSERT_EQ(back.request.bytes(), size);
    back.bytes.resize(size);
    ASSERT_TRUE(back.bytes == pattern(peer, self.rank, i, size)) << i << ", " << size;
  }
  self.barrier();
}

TEST(Offer, MessagesArriveWhateverWayTheyTake) {
  for (const bool is_oversubscribed : {false, true})
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const auto set_local_ranks = [&](TransportOptions& options) {
        options.local_ranks = is_oversubscribed ? 1000 : 1;
      };
      run(shm(2), [&](Rank& self) { exchange_at_random(self, seed); }, set_local_ranks);
    }
}

// A receive that has asked for the channel before it was known that it has too little room.
TEST(Offer, ThatFitsNowhereFailsOnBothSidesWhereRanksTakeTurns) {
  const auto oversubscribe = [](TransportOptions& options) { options.local_ranks = 1000; };
  const auto body = [](Rank& self) {
    constexpr size_t kSize = 300'000;
    const int peer = 1 - self.rank;
    for (uint64_t i = 0; i < 60; ++i) {
      const bool fits = i % 4 != 3;
      MessageBuffer out(pattern(self.rank, peer, i, kSize)), back(fits ? kSize : kSize - 1);
      self.link.receive(back.request, peer, 1, back.bytes);
      self.link.send(out.request, peer, 1, out.bytes);
      if (fits) {
        self.wait(out.request);
        self.wait(back.request);
        ASSERT_TRUE(back.bytes == pattern(peer, self.rank, i, kSize));
        continue;
      }
      for (auto* request : {&out.request, &back.request}) {
        ASSERT_EQ(self.link.wait(*request, in(kLong)), WaitResult::kDone);
        ASSERT_EQ(request->error(), Errc::kMismatch);
      }
    }
    self.barrier();
  };
  run(shm(2), body, oversubscribe);
}

// Each sends from memory that the other has mapped; once it is closed, the same addresses are read
// no more.
void exchange_mapped(Rank& self, size_t size, bool consumed, bool late) {
  const int peer = 1 - self.rank;
  MessageBuffer handle(kMemoryHandleBytes), back(size), word(8), answer(8);
  auto memory = self.link.allocate(size);
  Request sent_handle;
  const auto mine = serialize(memory->handle());
  self.link.receive(handle.request, peer, 2, handle.bytes);
  self.link.send(sent_handle, peer, 2, std::as_bytes(std::span(mine)));
  self.wait(handle.request);
  self.wait(sent_handle);
  const auto remote = self.link.import(parse_memory_handle(
      {reinterpret_cast<const char*>(handle.bytes.data()), handle.bytes.size()}));
  ASSERT_FALSE(remote->mapped().empty());
  const auto sent = pattern(self.rank, peer, size, size);
  std::copy(sent.begin(), sent.end(), memory->bytes().begin());
  self.barrier();
  Request out;
  const auto receive = [&](TestSink& sink) {
    if (consumed)
      self.link.receive(back.request, peer, 1, size, sink);
    else
      self.link.receive(back.request, peer, 1, back.bytes);
  };
  for (const bool open : {true, false}) {
    if (!open) {
      std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{0xa5});
      memory.reset();
      self.barrier();
    }
    TestSink sink;
    sink.bytes.resize(size);
    std::fill(back.bytes.begin(), back.bytes.end(), std::byte{0});
    if (!late) receive(sink);
    self.link.send(out, peer, 1, open ? ConstBytes(memory->bytes()) : ConstBytes(sent));
    self.link.receive(answer.request, peer, 2, answer.bytes);
    self.link.send(word.request, peer, 2, word.bytes);
    self.wait(answer.request);
    if (late) receive(sink);
    self.wait(out);
    self.wait(back.request);
    self.wait(word.request);
    EXPECT_TRUE((consumed ? sink.bytes : back.bytes) == pattern(peer, self.rank, size, size));
    EXPECT_EQ(sink.bytes_consumed, consumed ? size : 0);
    self.barrier();
  }
}

TEST(Offer, OfMappedMemoryIsReadWhereItLies) {
  if (!shm::is_cma_available()) GTEST_SKIP() << "copies between processes are not allowed here";
  for (const bool late : {false, true})
    for (const bool consumed : {false, true})
      for (const size_t size : {size_t{100'000}, size_t{3'000'001}, size_t{5} << 20}) {
        Copies copies;
        run_counted(copies, [&](Rank& self) { exchange_mapped(self, size, consumed, late); });
        // Plain receives look inside of fetch().
        if (consumed) {
          EXPECT_GE(copies.viewed, 2 * size) << size << (late ? ", late" : "");
        }
        EXPECT_GT(copies.done, 0) << size << (late ? ", late" : "");
      }
}

TEST(Offer, OfARankThatIsKilledEndsInItsFailure) {
  const auto status = run_processes(shm(2), [](Rank& self) {
    constexpr size_t kSize = 4'000'000;
    MessageBuffer message(kSize);
    if (self.rank == 1) {
      self.link.send(message.request, 0, 1, message.bytes);
      MessageBuffer hello(8);
      self.link.send(hello.request, 0, 2, hello.bytes);  // the offer is in the ring before this
      self.wait(hello.request);
      ::kill(::getpid(), SIGKILL);
    }
    MessageBuffer hello(8);
    self.link.receive(hello.request, 1, 2, hello.bytes);
    self.wait(hello.request);
    self.link.receive(message.request, 1, 1, message.bytes);
    if (self.link.wait(message.request, in(kLong)) != WaitResult::kDone)
      throw std::runtime_error("the end was not seen");
    // Right if it was copied in time, and nothing else.
    if (message.request.is_ok()) return;
    if (message.request.error() != Errc::kPeerFailed) throw std::runtime_error("not kPeerFailed");
  });
  EXPECT_EQ(status[0], 0);
  EXPECT_TRUE(WIFSIGNALED(status[1]));
}

// From now on this process may copy from itself alone, as where the system guards its processes.
void forbid_copies_from_peers() {
  sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, SYS_process_vm_readv},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, args)},
      {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, static_cast<uint32_t>(::getpid())},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program{std::size(code), code};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    throw std::runtime_error("no filter of system calls");
}
bool has_filters() { return shm::is_cma_available() && ::prctl(PR_GET_SECCOMP) >= 0; }

// Large messages with rank 0 or 1, in both directions; throws where they do not arrive.
void exchange_large(Rank& self) {
  const int peer = 1 - self.rank;
  for (uint64_t i = 0; i < 4; ++i) {
    MessageBuffer out(pattern(self.rank, peer, i, 3'000'001)), back(3'000'001);
    self.link.receive(back.request, peer, 1, back.bytes);
    self.link.send(out.request, peer, 1, out.bytes);
    self.wait(out.request);
    self.wait(back.request);
    if (back.bytes != pattern(peer, self.rank, i, 3'000'001))
      throw std::runtime_error("wrong data");
  }
}

void expect_success(const std::vector<int>& status) {
  for (const int end : status) EXPECT_EQ(end, 0);
}

// Rank 1 may not copy from rank 0, which may from it.
TEST(Offer, WhatTheSystemForbidsIsKnownBeforeTheFirstMessage) {
  if (!has_filters()) GTEST_SKIP() << "no copies between processes, or no way to forbid them";
  auto link = shm(2);
  link.make = [make = link.make](const TransportOptions& options) {
    if (options.rank == 1) forbid_copies_from_peers();
    return make(options);
  };
  expect_success(run_processes(link, [](Rank& self) {
    const auto can = self.link.capabilities();
    if (can.has_single_copy != (self.rank == 0) || can.has_passive_target != can.has_single_copy)
      throw std::runtime_error("the link does not know what it can");
    if (self.rank == 1 && can.reason.find("rank 0") == std::string::npos)
      throw std::runtime_error("it does not say why: " + can.reason);
    exchange_large(self);
    if (self.link.capabilities().has_single_copy != (self.rank == 0))
      throw std::runtime_error("one rank's ban is the other's");
    self.barrier();
  }));
}

TEST(Offer, WhatTheSystemForbidsLaterIsSentFromThenOn) {
  if (!has_filters()) GTEST_SKIP() << "no copies between processes, or no way to forbid them";
  expect_success(run_processes(shm(2), [](Rank& self) {
    exchange_large(self);
    if (!can_copy(self.link)) throw std::runtime_error("nothing forbids copies");
    forbid_copies_from_peers();
    exchange_large(self);
    if (can_copy(self.link)) throw std::runtime_error("the link does not know what it can");
    self.barrier();
  }));
}

}  // namespace
}  // namespace torch::comms::transport::test
