#include "ctran/engine/fingerprint.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace torch::comms::ctran {

static_assert(std::has_unique_object_representations_v<Fingerprint>);

namespace {

using schedule::Operation;

bool adds(uint8_t operation) noexcept {
  const auto op = static_cast<Operation>(operation);
  return op == Operation::kReduce || op == Operation::kAllReduce || op == Operation::kReduceScatter;
}

// Of whole vectors the blocks are how we cut them.
bool has_blocks(Operation op) noexcept {
  return op == Operation::kGather || op == Operation::kScatter || op == Operation::kAllGather ||
         op == Operation::kReduceScatter;
}

bool has_root(Operation op) noexcept {
  return op == Operation::kBroadcast || op == Operation::kReduce || op == Operation::kGather ||
         op == Operation::kScatter;
}

// Of SplitMix64 [Steele, Lea, Flood, OOPSLA 2014]: every bit of it from all bits.
uint64_t finish(uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

uint64_t hash_of_blocks(const schedule::Blocks& blocks) noexcept {
  uint64_t value = 0;
  for (int i = 1; i <= blocks.parts(); ++i) {
    const int64_t offset = blocks.begin(i);
    value = hash(&offset, sizeof offset, value);
  }
  return value;
}

}  // namespace

uint64_t hash(const void* data, size_t bytes, uint64_t seed) noexcept {
  uint64_t value = seed ^ 0xcbf29ce484222325u;
  const auto* at = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; i += sizeof value) {
    uint64_t word = 0;
    std::memcpy(&word, at + i, std::min(sizeof word, bytes - i));
    value = (value ^ word) * 0x100000001b3u;
    value ^= value >> 29;
  }
  return finish(value);
}

Fingerprint fingerprint_of(const Call& call, uint64_t sequence) noexcept {
  Fingerprint print;
  print.sequence = sequence;
  call.name.copy(print.name, sizeof print.name - 1);
  print.operation = static_cast<uint8_t>(call.operation);
  print.dtype = call.dtype;
  print.element_bytes = call.element_bytes;
  if (adds(print.operation)) print.reduce_op = static_cast<uint8_t>(call.op);
  if (has_root(call.operation)) print.root = call.root;
  // What an all_to_all with given counts moves is compared where two ranks meet.
  if (call.operation != Operation::kAllToAll || call.blocks.equal()) {
    print.count = call.blocks.total();
    if (has_blocks(call.operation) && !call.blocks.equal())
      print.counts = hash_of_blocks(call.blocks);
  }
  if (call.algorithm != nullptr || call.chunk >= 0) {
    const auto* name = call.algorithm == nullptr ? "" : call.algorithm->name.data();
    const size_t length = call.algorithm == nullptr ? 0 : call.algorithm->name.size();
    print.choice = hash(name, length, static_cast<uint64_t>(call.chunk));
  }
  return print;
}

std::string Fingerprint::words() const {
  if (sequence == 0) return "no collective yet";
  std::string text(name, ::strnlen(name, sizeof name));
  text += '(';
  if (static_cast<Operation>(operation) != Operation::kBarrier) {
    const auto known = static_cast<Dtype>(dtype);
    text += size_of(known) != 0 ? std::string(name_of(known)) : "dtype " + std::to_string(dtype);
    text += count >= 0 ? ", " + std::to_string(count) + " elements" : ", counts of its own";
    if (counts != 0) text += " in blocks " + std::to_string(counts % 100'000);
    if (reduce_op != 0xff) text += ", " + std::string(name_of(static_cast<ReduceOp>(reduce_op)));
    if (root >= 0) text += ", root " + std::to_string(root);
    if (choice != 0) text += ", with hints " + std::to_string(choice % 100'000);
  }
  return text + ") as number " + std::to_string(sequence);
}

uint64_t Fingerprint::what() const noexcept {
  Fingerprint print = *this;
  print.sequence = 0;
  return hash(&print, sizeof print);
}

uint32_t tag_of(uint64_t what, uint64_t sequence, uint64_t scope) noexcept {
  const auto value =
      static_cast<uint32_t>(finish(what ^ finish(scope) ^ (sequence * 0x9e3779b97f4a7c15u)));
  return value == 0 ? 1 : value;
}

}  // namespace torch::comms::ctran
