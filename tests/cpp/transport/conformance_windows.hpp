#pragma once

#include "transport/conformance.hpp"

// What windows need of a link beyond the rest of the contract.
namespace torch::comms::transport::test {

TEST_P(Conformance, APutThatWasEndedWritesNothingMoreAndHoldsNothingBack) {
  run(GetParam(), [](Rank& self) {
    constexpr size_t kLarge = 3'000'000, kSmall = 500;
    const auto at = [](int rank) { return 512 + static_cast<size_t>(rank) * (kLarge + kSmall); };
    Windows windows(self, at(self.size), false);
    std::list<MessageBuffer> small;
    for (const int peer : self.peers()) {
      {
        MessageBuffer large(pattern(self.rank, peer, 1, kLarge));
        Request flushed;
        self.link.put(large.request, windows.of(peer), at(self.rank), large.bytes);
        self.link.flush(flushed, peer);
        for (auto* request : {&large.request, &flushed}) {
          self.link.cancel(*request, Errc::kAborted);
          EXPECT_TRUE(request->is_done());
        }
      }  // its memory goes: the sanitizers see who reads it now
      auto& out = small.emplace_back(pattern(self.rank, peer, 2, kSmall));
      self.link.put(out.request, windows.of(peer), at(self.rank) + kLarge, out.bytes);
      self.link.signal(windows.of(peer), static_cast<uint64_t>(self.rank) * 8, 1, CounterOp::kAdd);
    }
    for (const int peer : self.peers()) {
      wait_counter(self, *windows.memory, static_cast<uint64_t>(peer) * 8, 1);
      const auto got = windows.memory->bytes().subspan(at(peer) + kLarge, kSmall);
      const auto want = pattern(peer, self.rank, 2, kSmall);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin()));
    }
    for (const int peer : self.peers()) {
      Request flushed;
      self.link.flush(flushed, peer);
      self.wait(flushed);
      EXPECT_EQ(self.link.state(peer), PeerState::kReady);
    }
    for (auto& message : small) self.wait(message.request);
    self.barrier();
  });
}

TEST_P(Conformance, AStoreSetsAWordDownwardsToo) {
  for (const bool shared : {true, false})
    run(GetParam(), [&](Rank& self) {
      Windows windows(self, 512, shared);
      for (const int peer : self.peers()) {
        const auto word = static_cast<uint64_t>(self.rank) * 8;
        self.link.signal(windows.of(peer), word, UINT64_MAX, CounterOp::kStore);
        self.link.signal(windows.of(peer), word, 7, CounterOp::kStore);
        Request flushed;
        self.link.flush(flushed, peer);
        self.wait(flushed);
      }
      self.barrier();
      for (const int peer : self.peers())
        EXPECT_EQ(read_counter(*windows.memory, static_cast<uint64_t>(peer) * 8), 7);
      self.barrier();
    });
}

}  // namespace torch::comms::transport::test
