#include "ctran/engine/control/collective_fingerprint.hpp"

namespace torch::comms::ctran {
namespace {

using schedule::Operation;

bool adds(uint8_t operation) noexcept {
  const auto op = static_cast<Operation>(operation);
  return op == Operation::kReduce || op == Operation::kAllReduce || op == Operation::kReduceScatter;
}

// Whether the fingerprint includes the blocks. For operations on whole vectors, blocks only say how
// the algorithm splits the vector.
bool has_blocks(Operation op) noexcept {
  return op == Operation::kGather || op == Operation::kScatter || op == Operation::kAllGather ||
         op == Operation::kReduceScatter;
}

bool has_root(Operation op) noexcept {
  return op == Operation::kBroadcast || op == Operation::kReduce || op == Operation::kGather ||
         op == Operation::kScatter;
}

uint64_t hash_of_blocks(const schedule::Blocks& blocks) noexcept {
  uint64_t value = 0;
  for (int i = 1; i <= blocks.parts(); ++i) {
    const int64_t offset = blocks.begin(i);
    value = hash_bytes(&offset, sizeof offset, value);
  }
  return value;
}

}  // namespace

Fingerprint fingerprint_of(const EngineCall& call, uint64_t sequence) noexcept {
  Fingerprint fingerprint;
  fingerprint.sequence = sequence;
  fingerprint.is_presence_only = call.is_consistency_check ? 1 : 0;
  call.name.copy(fingerprint.name, sizeof fingerprint.name - 1);
  fingerprint.operation = static_cast<uint8_t>(call.operation);
  fingerprint.dtype = call.operation == Operation::kBarrier ? monitor::kNoData : call.dtype;
  fingerprint.element_bytes = call.element_bytes;
  if (adds(fingerprint.operation)) fingerprint.reduce_op = static_cast<uint8_t>(call.op);
  if (has_root(call.operation)) fingerprint.root = call.root;
  // The counts of an all_to_all with per-rank counts are compared pairwise, by kCountsQuery and
  // message sizes.
  if (call.operation != Operation::kAllToAll || call.blocks.equal()) {
    fingerprint.count = call.blocks.total();
    if (has_blocks(call.operation) && !call.blocks.equal())
      fingerprint.counts_hash = hash_of_blocks(call.blocks);
  }
  if (call.algorithm != nullptr || call.chunk >= 0) {
    const auto* name = call.algorithm == nullptr ? "" : call.algorithm->name.data();
    const size_t length = call.algorithm == nullptr ? 0 : call.algorithm->name.size();
    fingerprint.algorithm_hash = hash_bytes(name, length, static_cast<uint64_t>(call.chunk));
  }
  return fingerprint;
}

uint32_t tag_of(uint64_t what, uint64_t sequence, uint64_t scope) noexcept {
  const auto value = static_cast<uint32_t>(monitor::splitmix64_finish(
      what ^ monitor::splitmix64_finish(scope) ^ (sequence * 0x9e3779b97f4a7c15u)));
  return value == 0 ? 1 : value;
}

}  // namespace torch::comms::ctran
