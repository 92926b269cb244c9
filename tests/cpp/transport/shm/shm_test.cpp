#include "transport/conformance_streams.hpp"
#include "transport/shm/shm_transport.hpp"

namespace torch::comms::transport::test {
namespace {

Link shm(const char* name, const shm::RingShape& ring, bool single_copy) {
  return {name, 3, [=](const TransportOptions& options) {
            shm::ShmOptions all{options};
            all.ring = ring;
            all.single_copy = single_copy;
            return make_shm_transport(all);
          }};
}

INSTANTIATE_TEST_SUITE_P(Shm, Conformance,
                         testing::Values(shm("as_it_is", {256, 0, 0}, true),
                                         shm("tiny_rings", {8, 4096, 1024}, false),
                                         shm("tiny_rings_single_copy", {8, 4096, 1024}, true)),
                         [](const auto& info) { return info.param.name; });

// Eight cells hold eight grants; the others wait in this rank, though no request of it says so.
TEST(ShmTransport, WhatTheRingHasNoRoomForIsUnsent) {
  std::list<Mail> mail;  // outlives the links, which end its requests
  const auto links = make_links(shm("tiny", {8, 4096, 1024}, false));
  auto& one = *links[0];
  auto& other = *links[1];
  const auto deadline = in(kLong);
  while ((one.state(1) != PeerState::kReady || other.state(0) != PeerState::kReady) &&
         std::chrono::steady_clock::now() < deadline)
    one.progress(), other.progress();
  for (int i = 0; i < 40; ++i) {
    auto& back = mail.emplace_back(100'000);
    one.receive(back.request, 1, 1, back.bytes);
  }
  one.progress();
  EXPECT_TRUE(one.unsent());
  while (one.unsent() && std::chrono::steady_clock::now() < deadline)
    other.progress(), one.progress();
  EXPECT_FALSE(one.unsent());
  EXPECT_FALSE(other.unsent());
}

}  // namespace
}  // namespace torch::comms::transport::test
