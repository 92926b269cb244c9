#include "monitor/fingerprint.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ctran/reduction/dtype.hpp"

namespace torch::comms::monitor {

static_assert(std::has_unique_object_representations_v<Fingerprint>);

uint64_t splitmix64_finish(uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed) noexcept {
  uint64_t value = seed ^ 0xcbf29ce484222325u;
  const auto* at = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; i += sizeof value) {
    uint64_t word = 0;
    std::memcpy(&word, at + i, std::min(sizeof word, bytes - i));
    value = (value ^ word) * 0x100000001b3u;
    value ^= value >> 29;
  }
  return splitmix64_finish(value);
}

std::string Fingerprint::format() const {
  if (sequence == 0) return "no collective yet";
  std::string text(name, ::strnlen(name, sizeof name));
  text += '(';
  if (dtype != kNoData) {
    const auto known = static_cast<ctran::Dtype>(dtype);
    text += size_of(known) != 0 ? std::string(name_of(known)) : "dtype " + std::to_string(dtype);
    text += count >= 0 ? ", " + std::to_string(count) + " elements" : ", a count per rank";
    if (counts_hash != 0)
      text += " in blocks whose sizes hash to " + std::to_string(counts_hash % 100'000);
    if (reduce_op != 0xff)
      text += ", " + std::string(name_of(static_cast<ctran::ReduceOpCode>(reduce_op)));
    if (root >= 0) text += ", root " + std::to_string(root);
    if (algorithm_hash != 0) text += ", with hints " + std::to_string(algorithm_hash % 100'000);
  }
  return text + ") as number " + std::to_string(sequence) +
         (is_presence_only != 0 ? ", with check_calls" : "");
}

uint64_t Fingerprint::hash_without_sequence() const noexcept {
  Fingerprint fingerprint = *this;
  fingerprint.sequence = 0;
  return hash_bytes(&fingerprint, sizeof fingerprint);
}

}  // namespace torch::comms::monitor
