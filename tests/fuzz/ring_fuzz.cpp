// Shared memory that the process at its other end has filled with anything.

#include <algorithm>
#include <new>

#include "fuzz.hpp"
#include "transport/shm/frame_ring.hpp"

namespace shm = torch::comms::transport::shm;
using torch::comms::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const shm::RingShape shape{.cells = 8, .bulk_bytes = 512, .chunk_bytes = 128};
  const size_t bytes = shape.bytes();
  auto* at = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{128}));
  std::memset(at, 0, bytes);
  const auto memory = shm::RingMemory::at_address(at, shape);
  torch::comms::fuzz::Input input(data, size);
  shm::RingConsumer consumer(memory);
  uint64_t sum = 0;
  for (uint64_t number = 0; number < 64; ++number) {
    // The next cell, as the producer says that it is; its stamp is right more often than not.
    auto& cell = memory.cells[number % shape.cells];
    cell.frame = input.take<torch::comms::transport::Frame>();
    const auto stamp = input.take<uint8_t>();
    const uint64_t rewinds = stamp % 8 == 0 ? shm::RingCell::kRewinds : 0;
    cell.stamp = stamp < 200 ? (number + 1) | rewinds : input.take<uint64_t>();
    const auto bulk = input.take(size_t{stamp} % 32);
    if (!bulk.empty()) std::memcpy(memory.bulk + stamp % 64, bulk.data(), bulk.size());
    torch::comms::transport::Frame frame;
    torch::comms::transport::ConstBytes payload;
    const auto front = consumer.front(frame, payload);
    if (front == shm::RingConsumer::RingFront::kCorrupted) break;
    if (front == shm::RingConsumer::RingFront::kEmpty) continue;
    require(payload.size() == frame.bytes && frame.bytes <= shape.chunk_bytes);
    for (const auto byte : payload) sum += static_cast<uint8_t>(byte);
    consumer.pop();
    consumer.publish();
  }
  require(sum < uint64_t{1} << 40);
  ::operator delete(at, std::align_val_t{128});
  return 0;
}
