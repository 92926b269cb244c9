#include "transport/protocol/region_table.hpp"

#include <algorithm>

#include "transport/connect/endpoint.hpp"

namespace torch::comms::transport {

RegionTable::RegisteredRegion RegionTable::add(Bytes bytes, bool in_file) {
  const auto key = static_cast<uint32_t>(random_number()) | 1;  // never 0
  if (free_words_.empty()) free_words_.push_back(&words_.emplace_back(0));
  auto* word = free_words_.back();
  regions_[next_] = {bytes, key, word, in_file};
  file_regions_ += in_file ? 1 : 0;
  free_words_.pop_back();
  word->store(key, std::memory_order_release);
  return {next_++, key, word};
}

void RegionTable::remove(uint32_t id) noexcept {
  const auto found = regions_.find(id);
  if (found == regions_.end()) return;
  found->second.word->store(0, std::memory_order_seq_cst);
  if (on_remove) on_remove(found->second.bytes);
  free_words_.push_back(found->second.word);
  file_regions_ -= found->second.is_in_file ? 1 : 0;
  regions_.erase(found);
}

uint32_t RegionTable::mappable_key(ConstBytes bytes) const noexcept {
  if (file_regions_ == 0) return 0;
  const auto* const begin = bytes.data();
  const auto* const end = begin + bytes.size();
  const Region* largest = nullptr;  // most peers have mapped it: a window may be a part of it
  for (const auto& [id, region] : regions_) {
    const bool holds = region.is_in_file && begin >= region.bytes.data() &&
                       end <= region.bytes.data() + region.bytes.size();
    if (holds && (largest == nullptr || region.bytes.size() > largest->bytes.size()))
      largest = &region;
  }
  return largest == nullptr ? 0 : largest->key;
}

std::byte* RegionTable::find(uint32_t id, uint32_t key, uint64_t offset,
                             uint64_t size) const noexcept {
  const auto found = regions_.find(id);
  if (found == regions_.end() || found->second.key != key) return nullptr;
  const Bytes bytes = found->second.bytes;
  if (offset > bytes.size() || size > bytes.size() - offset) return nullptr;
  return bytes.data() + offset;
}

RegisteredMemory::RegisteredMemory(std::shared_ptr<RegionTable> regions, int rank, Bytes bytes,
                                   base::Mapping mapping, FileLocation location)
    : regions_(std::move(regions)),
      mapping_(std::move(mapping)),
      location_(std::move(location)),
      bytes_(bytes) {
  const auto entry = regions_->add(bytes_, static_cast<bool>(location_.file));
  handle_ = {.rank = rank,
             .region = entry.id,
             .key = entry.key,
             .descriptor = location_.file.get(),
             .size = bytes_.size(),
             .address = reinterpret_cast<uint64_t>(bytes_.data()),
             .key_address = reinterpret_cast<uint64_t>(entry.word),
             .file = location_.inode,
             .file_offset = location_.offset};
}

RegisteredMemory::~RegisteredMemory() { regions_->remove(handle_.region); }

}  // namespace torch::comms::transport
