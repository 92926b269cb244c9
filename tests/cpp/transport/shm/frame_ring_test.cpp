#include "transport/shm/frame_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include <torchcomms/base/error.hpp>

namespace torch::comms::transport::shm {
namespace {

// Both ends over one mapping, so that a race detector sees both.
struct Ring {
  explicit Ring(const RingShape& shape)
      : bytes(shape.bytes() + 128),
        memory(RingMemory::at_address(aligned(), shape)),
        producer(memory),
        consumer(memory) {}
  std::byte* aligned() {
    void* at = bytes.data();
    size_t space = bytes.size();
    return static_cast<std::byte*>(std::align(128, bytes.size() - 128, at, space));
  }
  std::vector<std::byte> bytes;
  RingMemory memory;
  RingProducer producer;
  RingConsumer consumer;
};

bool push(RingProducer& producer, uint32_t number, size_t size) {
  std::vector<std::byte> payload(size, static_cast<std::byte>(number));
  Frame frame;
  frame.sequence = number;
  frame.bytes = static_cast<uint32_t>(size);
  const ConstBytes pieces[] = {ConstBytes(payload).first(size / 3),
                               ConstBytes(payload).subspan(size / 3)};
  return producer.push(frame, pieces);
}

void hands_over_every_frame(const RingShape& shape, uint32_t frames) {
  Ring ring(shape);
  const auto size_of = [&](uint32_t number) {
    return size_t{number % 7 == 0 ? number * 37 % (shape.chunk_bytes + 1) : number % 60};
  };
  std::thread writer([&] {
    for (uint32_t i = 0; i < frames;)
      if (push(ring.producer, i, size_of(i)))
        ++i;
      else
        std::this_thread::yield();
  });
  Frame frame;
  ConstBytes payload;
  for (uint32_t i = 0; i < frames;) {
    if (ring.consumer.front(frame, payload) == RingConsumer::RingFront::kEmpty) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(frame.sequence, i);
    ASSERT_EQ(payload.size(), size_of(i));
    const std::vector<std::byte> wanted(payload.size(), static_cast<std::byte>(i));
    ASSERT_TRUE(std::ranges::equal(payload, wanted));
    ring.consumer.pop();
    ring.consumer.publish();
    ++i;
  }
  writer.join();
}

TEST(Ring, HandsOverEveryFrameInOrderBetweenTwoThreads) {
  hands_over_every_frame({.cells = 16, .bulk_bytes = 2048, .chunk_bytes = 512}, 60'000);
}

TEST(Ring, HandsOverEveryFrameWhereItGoesBackToTheBeginning) {
  hands_over_every_frame({.cells = 64, .bulk_bytes = 128 << 10, .chunk_bytes = 16 << 10}, 60'000);
}

constexpr RingShape kLarge{.cells = 64, .bulk_bytes = 128 << 10, .chunk_bytes = 16 << 10};

// Pops the frame in front; where its payload was, from the beginning of the bytes.
ptrdiff_t pop(Ring& ring) {
  Frame frame;
  ConstBytes payload;
  EXPECT_EQ(ring.consumer.front(frame, payload), RingConsumer::RingFront::kFrame);
  const auto at = payload.data() - ring.memory.bulk;
  ring.consumer.pop();
  ring.consumer.publish();
  return at;
}

TEST(Ring, GoesBackToTheBeginningWhereItsConsumerHasKeptUp) {
  Ring ring(kLarge);
  for (uint32_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(push(ring.producer, i, 16 << 10));
    EXPECT_EQ(pop(ring), i % 2 * (16 << 10));
  }
}

TEST(Ring, UsesAllOfItWhereItsConsumerIsBehind) {
  Ring ring(kLarge);
  ASSERT_TRUE(push(ring.producer, 0, 16 << 10));
  ASSERT_TRUE(push(ring.producer, 1, 16 << 10));
  pop(ring), pop(ring);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(push(ring.producer, i, 16 << 10));  // all of it
  EXPECT_FALSE(push(ring.producer, 8, 25));
  for (ptrdiff_t i = 0; i < 8; ++i) EXPECT_EQ(pop(ring), i * (16 << 10));
  ASSERT_TRUE(push(ring.producer, 8, 16 << 10));
  EXPECT_EQ(pop(ring), 0);
}

TEST(Ring, RefusesWhatHasNoRoomAndTakesItOnceThereIs) {
  Ring ring({.cells = 8, .bulk_bytes = 1024, .chunk_bytes = 512});
  EXPECT_TRUE(push(ring.producer, 0, 512));
  EXPECT_TRUE(push(ring.producer, 1, 512));
  EXPECT_FALSE(push(ring.producer, 2, 64));  // no bytes left, but cells
  for (uint32_t i = 2; i < 8; ++i) EXPECT_TRUE(push(ring.producer, i, 8));
  EXPECT_FALSE(push(ring.producer, 8, 8));
  EXPECT_FALSE(ring.producer.has_room_changed());
  Frame frame;
  ConstBytes payload;
  ASSERT_EQ(ring.consumer.front(frame, payload), RingConsumer::RingFront::kFrame);
  ring.consumer.pop();
  EXPECT_TRUE(ring.consumer.publish());
  EXPECT_TRUE(ring.producer.has_room_changed());
  EXPECT_TRUE(push(ring.producer, 8, 512));
}

// A sleeper that is woken for old room again and again never sleeps.
TEST(Ring, RoomThatWasKnownAtTheRefusalIsNoNews) {
  Ring ring({.cells = 8, .bulk_bytes = 1024, .chunk_bytes = 512});
  Frame frame;
  ConstBytes payload;
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(push(ring.producer, i, 8));
    ASSERT_EQ(ring.consumer.front(frame, payload), RingConsumer::RingFront::kFrame);
    ring.consumer.pop();
  }
  ASSERT_TRUE(ring.consumer.publish());
  while (push(ring.producer, 9, 512)) {
  }
  EXPECT_FALSE(ring.producer.has_room_changed());
}

TEST(Ring, ADamagedSizeIsSeen) {
  Ring ring({.cells = 8, .bulk_bytes = 1024, .chunk_bytes = 512});
  ASSERT_TRUE(push(ring.producer, 0, 100));
  ring.memory.cells[0].frame.bytes = 1 << 30;
  Frame frame;
  ConstBytes payload;
  EXPECT_EQ(ring.consumer.front(frame, payload), RingConsumer::RingFront::kCorrupted);
}

TEST(Ring, AnImpossibleShapeIsRefused) {
  for (const RingShape& shape : {RingShape{7, 1024, 512}, RingShape{8, 1000, 448},
                                 RingShape{8, 1024, 500}, RingShape{8, 1024, 1024}})
    EXPECT_THROW(shape.require_valid(), CommError);
}

}  // namespace
}  // namespace torch::comms::transport::shm
