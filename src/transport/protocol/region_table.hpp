#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/memory.hpp"

namespace torch::comms::transport {

// The memory regions that this rank has registered for its peers.
class RegionTable {
 public:
  struct RegisteredRegion {
    uint32_t id, key;
    // Holds the key while the region is registered; its address stays the same.
    const std::atomic<uint32_t>* word;
  };
  // Registers `bytes`. `in_file`: peers can map them.
  // Throws: CommError(kSystem) if the system gives no random numbers.
  RegisteredRegion add(Bytes bytes, bool in_file = false);
  void remove(uint32_t id) noexcept;
  // Returns: the address of [offset, offset + size) of a region; nullptr for a wrong number, key or
  // range.
  std::byte* find(uint32_t id, uint32_t key, uint64_t offset, uint64_t size) const noexcept;
  // Returns: the key of a region that peers can map and that contains all of `bytes`; 0 if no
  // region does.
  uint32_t mappable_key(ConstBytes bytes) const noexcept;
  // Called before a region is removed; after the call nothing may be written there.
  std::function<void(ConstBytes)> on_remove = {};

 private:
  struct Region {
    Bytes bytes;
    uint32_t key;
    std::atomic<uint32_t>* word;
    bool is_in_file;
  };
  std::deque<std::atomic<uint32_t>> words_;
  std::vector<std::atomic<uint32_t>*> free_words_;
  std::unordered_map<uint32_t, Region> regions_;
  uint32_t next_ = 1;
  size_t file_regions_ = 0;  // regions that peers can map
};

// The place of memory in a file that other processes may map.
struct FileLocation {
  base::FileDescriptor file = {};  // empty: the memory is in no file
  uint64_t inode = 0, offset = 0;
};

// Memory registered in a RegionTable. Also keeps `mapping` and the file alive, if given.
class RegisteredMemory final : public MemoryRegion {
 public:
  RegisteredMemory(std::shared_ptr<RegionTable> regions, int rank, Bytes bytes,
                   base::Mapping mapping = {}, FileLocation location = {});
  ~RegisteredMemory() override;
  Bytes bytes() const noexcept override { return bytes_; }
  const MemoryHandle& handle() const noexcept override { return handle_; }

 private:
  std::shared_ptr<RegionTable> regions_;
  base::Mapping mapping_;
  FileLocation location_;
  Bytes bytes_;
  MemoryHandle handle_;
};

}  // namespace torch::comms::transport
