#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "ctran/engine/world.hpp"

// Operations as one loop over all ranks' inputs: what the engine is held against. Values are small
// whole numbers, exact in every dtype here, so that no order of addition changes a result.
namespace torch::comms::ctran::test {

// Of one rank: what it gives, and what it must have afterwards.
struct Case {
  Operation operation;
  int root;
  std::vector<int64_t> counts;  // by rank: blocks, or of all_to_all [source * size + target]
  ReduceOpCode op;
};

inline int size_of(const Case& c) {
  const auto n = c.counts.size();
  if (c.operation != Operation::kAllToAll) return static_cast<int>(n);
  int size = 1;
  while (static_cast<size_t>(size) * static_cast<size_t>(size) < n) ++size;
  return size;
}

inline std::vector<int64_t> offsets_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> offsets = {0};
  for (const auto count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

// What rank r has at place i: 0 to 3, so that sums of five and products stay exact in bfloat16.
inline int value(int rank, int64_t i) {
  return static_cast<int>((static_cast<uint64_t>(i) * 7 + static_cast<uint64_t>(rank) * 3 + 1) % 4);
}

inline int64_t row(const Case& c, int source, int target) {
  const auto size = static_cast<size_t>(size_of(c));
  return c.counts[static_cast<size_t>(source) * size + static_cast<size_t>(target)];
}

inline int64_t total(const Case& c) { return offsets_of(c.counts).back(); }

inline std::vector<int> input_of(const Case& c, int rank) {
  int64_t count = 0;
  const int size = size_of(c);
  switch (c.operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kReduceScatter:
      count = total(c);
      break;
    case Operation::kScatter:
    case Operation::kBroadcast:
      count = rank == c.root ? total(c) : 0;
      break;
    case Operation::kGather:
    case Operation::kAllGather:
      count = c.counts[static_cast<size_t>(rank)];
      break;
    case Operation::kAllToAll:
      for (int target = 0; target < size; ++target) count += row(c, rank, target);
      break;
    default:
      break;
  }
  std::vector<int> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(value(rank, i));
  return values;
}

// AVG as it comes out of exact sums, not yet rounded to the dtype.
inline double reduced(const Case& c, int64_t i) {
  const int size = size_of(c);
  double result = value(0, i);
  for (int rank = 1; rank < size; ++rank) {
    const double next = value(rank, i);
    if (c.op == ReduceOpCode::kMax)
      result = std::max(result, next);
    else if (c.op == ReduceOpCode::kProduct)
      result *= next;
    else
      result += next;
  }
  if (c.op == ReduceOpCode::kAverage) result /= size;
  if (c.op == ReduceOpCode::kPremulSum) result *= 2;
  return result;
}

inline std::vector<double> output_of(const Case& c, int rank) {
  std::vector<double> values;
  const int size = size_of(c);
  const auto append = [&](const std::vector<int>& from, int64_t begin, int64_t count) {
    values.insert(values.end(), from.begin() + begin, from.begin() + begin + count);
  };
  const auto offsets = offsets_of(c.counts);
  const auto mine = static_cast<size_t>(rank);
  switch (c.operation) {
    case Operation::kReduce:
      if (rank != c.root) break;
      [[fallthrough]];
    case Operation::kAllReduce:
      for (int64_t i = 0; i < offsets.back(); ++i) values.push_back(reduced(c, i));
      break;
    case Operation::kReduceScatter:
      for (int64_t i = offsets[mine]; i < offsets[mine + 1]; ++i) values.push_back(reduced(c, i));
      break;
    case Operation::kBroadcast:
      append(input_of(c, c.root), 0, offsets.back());
      break;
    case Operation::kScatter:
      append(input_of(c, c.root), offsets[mine], c.counts[mine]);
      break;
    case Operation::kGather:
      if (rank != c.root) break;
      [[fallthrough]];
    case Operation::kAllGather:
      for (int source = 0; source < size; ++source)
        append(input_of(c, source), 0, c.counts[static_cast<size_t>(source)]);
      break;
    case Operation::kAllToAll:
      for (int source = 0; source < size; ++source) {
        int64_t begin = 0;
        for (int target = 0; target < rank; ++target) begin += row(c, source, target);
        append(input_of(c, source), begin, row(c, source, rank));
      }
      break;
    default:
      break;
  }
  return values;
}

// A case in float32, its memory, and what must be in it afterwards. Lives as long as its call.
struct Checked {
  Checked(const Case& c, int rank) : want_(output_of(c, rank)) {
    const auto values = input_of(c, rank);
    in_.assign(values.begin(), values.end());
    out_.assign(want_.size(), -1);
    if (c.operation == Operation::kBroadcast && rank == c.root)
      out_.assign(values.begin(), values.end());
    offsets_ = offsets_of(c.counts);
    if (c.operation == Operation::kAllToAll) {
      offsets_ = {0};
      for (int peer = 0; peer < size_of(c); ++peer) {
        offsets_.push_back(offsets_.back() + row(c, rank, peer));
        arriving_.push_back(arriving_.back() + row(c, peer, rank));
      }
      call.arriving = Blocks::from_offsets(arriving_);
    }
    input_ = bytes_of(std::as_const(in_));
    output_ = bytes_of(out_);
    call.name = schedule::operation_name(c.operation);
    call.operation = c.operation;
    call.dtype = static_cast<uint8_t>(Dtype::kFloat32);
    call.element_bytes = sizeof(float);
    call.op = c.op;
    call.root = c.root;
    call.blocks = Blocks::from_offsets(offsets_);
    call.input = {&input_, 1};
    call.output = {&output_, 1};
    call.timeout = kLong;
  }
  Checked(const Checked&) = delete;
  bool right() const { return std::equal(out_.begin(), out_.end(), want_.begin(), want_.end()); }
  EngineCall call;

 private:
  std::vector<double> want_;
  std::vector<float> in_, out_;
  std::vector<int64_t> offsets_, arriving_ = {0};
  ConstBytes input_;
  Bytes output_;
};

inline constexpr Operation kCollectives[] = {
    Operation::kBroadcast, Operation::kReduce,    Operation::kAllReduce,     Operation::kGather,
    Operation::kScatter,   Operation::kAllGather, Operation::kReduceScatter, Operation::kAllToAll};

inline std::vector<int64_t> equal_counts(Operation operation, int size, int64_t each) {
  return std::vector<int64_t>(
      static_cast<size_t>(operation == Operation::kAllToAll ? size * size : size), each);
}

}  // namespace torch::comms::ctran::test
