#include "transport/memory.hpp"

#include "transport/byte_stream.hpp"

namespace torch::comms::transport {
namespace {

constexpr uint32_t kMagic = 0x524d4354;  // "TCMR"
constexpr uint32_t kVersion = 2;

}  // namespace

std::string serialize(const MemoryHandle& handle) {
  ByteWriter writer;
  writer.add(kMagic).add(kVersion).add(handle.rank).add(handle.region).add(handle.key);
  writer.add(handle.descriptor)
      .add(handle.size)
      .add(handle.address)
      .add(handle.key_address)
      .add(handle.file)
      .add(handle.file_offset);
  return writer.release();
}

MemoryHandle parse_memory_handle(std::string_view text) {
  ByteReader reader(text, "memory handle");
  reader.require(text.size() == kMemoryHandleBytes, "expected 64 bytes");
  reader.require(reader.number<uint32_t>() == kMagic, "not a memory handle");
  reader.require(reader.number<uint32_t>() == kVersion,
                 "made by another torchcomms version; all ranks must run the same version");
  MemoryHandle handle;
  handle.rank = reader.number<int32_t>();
  handle.region = reader.number<uint32_t>();
  handle.key = reader.number<uint32_t>();
  handle.descriptor = reader.number<int32_t>();
  handle.size = reader.number<uint64_t>();
  handle.address = reader.number<uint64_t>();
  handle.key_address = reader.number<uint64_t>();
  handle.file = reader.number<uint64_t>();
  handle.file_offset = reader.number<uint64_t>();
  return handle;
}

void update_counter(std::byte* counter, uint64_t amount, CounterOp op) noexcept {
  const std::atomic_ref word(*reinterpret_cast<uint64_t*>(counter));
  if (op == CounterOp::kAdd) {
    word.fetch_add(amount, std::memory_order_seq_cst);
    return;
  }
  if (op == CounterOp::kStore) {
    word.store(amount, std::memory_order_seq_cst);
    return;
  }
  auto now = word.load(std::memory_order_relaxed);
  while (now < amount && !word.compare_exchange_weak(now, amount, std::memory_order_seq_cst)) {
  }
}

}  // namespace torch::comms::transport
