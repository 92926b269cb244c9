#include <sys/mman.h>

#include "base/os/handles.hpp"
#include "ctran/engine/world.hpp"

// A rank that cannot go on, whose peers are all well.
namespace torch::comms::ctran::test {
namespace {

// Rank 0 sends what it may not read to rank 1, and rank 2 waits for both.
void send_unreadable(Rank& self) {
  constexpr size_t kBytes = 8u << 20;
  const auto messages = Blocks::even(kBytes, 3);
  self.group->run(barrier(3));
  self.sync();
  const auto error = error_of([&] {
    if (self.rank() == 0) {
      base::Mapping mapping(::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                            kBytes);
      Simple send(Operation::kSend, messages, mapping.bytes(), {}, 1);
      send.call.root = 1;
      self.group->run(send.call);
    } else if (self.rank() == 1) {
      std::vector<std::byte> into(kBytes);
      Simple receive(Operation::kReceive, messages, {}, into, 1);
      receive.call.root = 0;
      self.group->run(receive.call);
    }
    self.group->run(barrier(3));
  });
  EXPECT_EQ(error.context().culprits, std::vector{0}) << error.what();
  EXPECT_EQ(error.code(), self.rank() == 0 ? Errc::kSystem : Errc::kPeerFailed) << error.what();
  if (self.rank() == 0) {
    EXPECT_TRUE(error.why().starts_with("this rank cannot reach rank 1: ")) << error.why();
    EXPECT_TRUE(error.why().ends_with("Bad address")) << error.why();
  }
  self.sync();
}

TEST(OwnFailure, OfARankThatCannotSendIsBlamedOnNobodyElse) {
  run({.size = 3, .links = LinkPolicy::kTcp}, send_unreadable);
}

}  // namespace
}  // namespace torch::comms::ctran::test
