#pragma once

#include "transport/conformance.hpp"

// What every link does with tags and with streams that are closed. Instantiated with
// conformance.hpp.
namespace torch::comms::transport::test {

TEST_P(Conformance, AMessageWithAnotherTagFailsAndWritesNothing) {
  for (const size_t size : {size_t{8}, size_t{1'000'000}})
    for (const bool receive_first : {true, false})
      run(GetParam(), [&](Rank& self) {
        std::list<MessageBuffer> sent, received;
        const auto receive = [&] {
          for (const int peer : self.peers())
            for (const uint32_t tag : {7u, 9u, 7u}) {
              auto& back = received.emplace_back(size);
              self.link.receive(back.request, peer, 1, back.bytes, tag);
            }
        };
        if (receive_first) receive();
        self.barrier();
        for (const int peer : self.peers())
          for (const uint32_t tag : {7u, 8u, 7u}) {
            auto& out = sent.emplace_back(pattern(self.rank, peer, tag, size));
            self.link.send(out.request, peer, 1, out.bytes, tag);
          }
        self.barrier();
        if (!receive_first) receive();
        auto back = received.begin();
        auto out = sent.begin();
        for (const int peer : self.peers())
          for (int i = 0; i < 3; ++i, ++back, ++out) {
            if (i != 1) {
              self.wait(out->request);
              self.wait(back->request);
              EXPECT_TRUE(back->bytes == pattern(peer, self.rank, 7, size));
              continue;
            }
            EXPECT_EQ(self.error_of(back->request), Errc::kMismatch);
            EXPECT_TRUE(back->bytes == std::vector<std::byte>(size));
            if (size > 100) {
              EXPECT_EQ(self.error_of(out->request), Errc::kMismatch);
            } else {
              self.wait(out->request);
            }
          }
        self.barrier();
      });
}

TEST_P(Conformance, AMessageWithoutItsReceiveIsKnownUntilThatComes) {
  for (const size_t size : {size_t{8}, size_t{3'000'000}})
    run(GetParam(), [&](Rank& self) {
      std::list<MessageBuffer> sent, received;
      for (const int peer : self.peers()) EXPECT_FALSE(self.link.has_message(peer, 3));
      self.barrier();
      for (const int peer : self.peers()) {
        auto& out = sent.emplace_back(pattern(self.rank, peer, 3, size));
        self.link.send(out.request, peer, 3, out.bytes);
      }
      for (const int peer : self.peers()) {
        while (!self.link.has_message(peer, 3)) self.link.progress();
        EXPECT_FALSE(self.link.has_message(peer, 4));
        auto& back = received.emplace_back(size);
        self.link.receive(back.request, peer, 3, back.bytes);
        EXPECT_FALSE(self.link.has_message(peer, 3));
      }
      for (auto& message : received) self.wait(message.request);
      for (auto& message : sent) self.wait(message.request);
      self.barrier();
    });
}

// Requests of all kinds are in flight on stream 5 when it is closed; stream 4 and 6 go on.
TEST_P(Conformance, ClosedStreamsEndTheirRequestsAndNoOthers) {
  run(GetParam(), [](Rank& self) {
    std::list<MessageBuffer> kept, closed;
    const auto exchange = [&](std::list<MessageBuffer>& messages, uint32_t stream, uint64_t number,
                              size_t size) {
      for (const int peer : self.peers()) {
        auto& back = messages.emplace_back(size);
        self.link.receive(back.request, peer, stream, back.bytes);
        auto& out = messages.emplace_back(pattern(self.rank, peer, number, size));
        self.link.send(out.request, peer, stream, out.bytes);
      }
    };
    for (const size_t size : {size_t{8}, size_t{3'000'000}}) {
      exchange(kept, 4, size, size);
      exchange(closed, 5, size, size);
      exchange(kept, 6, size, size);
    }
    for (const int peer : self.peers()) {  // never met by the other side
      auto& back = closed.emplace_back(100);
      self.link.receive(back.request, peer, 5, back.bytes);
    }
    for (int i = 0; i < self.rank; ++i) self.link.progress();  // each is at another point
    self.link.close_streams(5, 5, Errc::kAborted);
    for (auto& message : closed) {
      EXPECT_TRUE(message.request.is_done());
      EXPECT_TRUE(message.request.is_ok() || message.request.error() == Errc::kAborted);
      std::fill(message.bytes.begin(), message.bytes.end(), std::byte{0xa5});
    }
    EXPECT_FALSE(closed.back().request.is_ok());
    for (auto& message : kept) self.wait(message.request);
    self.barrier();
    auto next = kept.begin();
    for (const size_t size : {size_t{8}, size_t{3'000'000}})
      for (int stream = 0; stream < 2; ++stream)
        for (const int peer : self.peers()) {
          EXPECT_TRUE(next->bytes == pattern(peer, self.rank, size, size));
          std::advance(next, 2);
        }
    for (auto& message : closed)  // nobody wrote there since
      EXPECT_EQ(std::count(message.bytes.begin(), message.bytes.end(), std::byte{0xa5}),
                static_cast<std::ptrdiff_t>(message.bytes.size()));
    Request late;
    self.link.receive(late, self.peers().front(), 5, Bytes{});
    EXPECT_EQ(self.error_of(late), Errc::kFinalized);
    self.barrier();
  });
}

// Four times the credit of small messages goes to streams that their receiver has closed.
TEST_P(Conformance, ClosedStreamsGiveTheirCreditBack) {
  run(GetParam(), [](Rank& self) {
    if (self.rank == 0) self.link.close_streams(10, 20, Errc::kAborted);
    self.barrier();
    const size_t size = std::min<size_t>(4096, self.link.capabilities().eager_bytes);
    for (int part = 0; part < 8 && self.size > 1; ++part) {
      std::list<MessageBuffer> sent;
      if (self.rank == self.size - 1)
        for (size_t i = 0; i < (512u << 10) / size; ++i) {
          auto& out = sent.emplace_back(size);
          self.link.send(out.request, 0, 10 + static_cast<uint32_t>(i % 11), out.bytes);
        }
      for (auto& out : sent) self.wait(out.request);
      self.barrier();
    }
    self.barrier();
    for (const int peer : self.peers()) {
      MessageBuffer out(pattern(self.rank, peer, 1, 4096)), back(4096);
      self.link.receive(back.request, peer, 21, back.bytes);
      self.link.send(out.request, peer, 21, out.bytes);
      self.wait(out.request);
      self.wait(back.request);
      EXPECT_TRUE(back.bytes == pattern(peer, self.rank, 1, 4096));
    }
    self.barrier();
  });
}

}  // namespace torch::comms::transport::test
