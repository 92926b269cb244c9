#include "transport/regions.hpp"

#include "transport/endpoint.hpp"

namespace torch::comms::transport {

Regions::Entry Regions::add(Bytes bytes) {
  const Entry entry{next_++, static_cast<uint32_t>(random_number())};
  regions_[entry.id] = {bytes, entry.key};
  return entry;
}

void Regions::remove(uint32_t id) noexcept {
  const auto found = regions_.find(id);
  if (found == regions_.end()) return;
  if (on_remove) on_remove(found->second.bytes);
  regions_.erase(found);
}

std::byte* Regions::find(uint32_t id, uint32_t key, uint64_t offset, uint64_t size) const noexcept {
  const auto found = regions_.find(id);
  if (found == regions_.end() || found->second.key != key) return nullptr;
  const Bytes bytes = found->second.bytes;
  if (offset > bytes.size() || size > bytes.size() - offset) return nullptr;
  return bytes.data() + offset;
}

RegisteredMemory::RegisteredMemory(std::shared_ptr<Regions> regions, int rank, Bytes bytes,
                                   Mapping mapping, FileDescriptor file, uint64_t inode)
    : regions_(std::move(regions)),
      mapping_(std::move(mapping)),
      file_(std::move(file)),
      bytes_(bytes) {
  const auto entry = regions_->add(bytes_);
  handle_ = {rank,        entry.id,      entry.key,
             file_.get(), bytes_.size(), reinterpret_cast<uint64_t>(bytes_.data()),
             inode};
}

RegisteredMemory::~RegisteredMemory() { regions_->remove(handle_.region); }

}  // namespace torch::comms::transport
