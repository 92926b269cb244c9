// How fast reductions are beside memcpy, by dtype, operation, instruction set and size:
//
//   build/dev/bench_arithmetic [rounds [dtype]]
//
// GB/s are bytes read and written by the call, the fastest of the rounds, which visit all cases in
// turn.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/os/streaming_copy.hpp"
#include "ctran/reduction/reduction.hpp"

namespace {

using namespace torch::comms::ctran;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;

constexpr size_t kSizes[] = {4 << 10, 256 << 10, 16 << 20};
constexpr size_t kOperands = 8;
constexpr std::chrono::milliseconds kSample{2};

struct Case {
  std::string name;
  size_t bytes;  // read and written
  std::function<void()> call;
  double best_s = 1e9;

  void sample() {
    size_t calls = 0;
    const auto begin = Clock::now();
    auto end = begin;
    do {
      call();
      ++calls;
      end = Clock::now();
    } while (end - begin < kSample);
    best_s = std::min(
        best_s, std::chrono::duration<double>(end - begin).count() / static_cast<double>(calls));
  }
  double gigabytes_s() const { return static_cast<double>(bytes) / best_s / 1e9; }
};

// Ordinary numbers in every dtype: small integers, or 0x3c of each byte, which is near 1 in all
// formats of floating point but e8m0.
std::vector<std::byte*> make_operands(size_t bytes) {
  std::vector<std::byte*> operands;
  for (size_t i = 0; i <= kOperands; ++i) {
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
    std::memset(memory, 0x3c, bytes);
    operands.push_back(memory);
  }
  return operands;
}

void add_copies(std::vector<Case>& cases, size_t bytes, const std::vector<std::byte*>& memory) {
  cases.push_back({"memcpy", 2 * bytes, [=] { std::memcpy(memory[0], memory[1], bytes); }});
  cases.push_back({"past caches", 2 * bytes,
                   [=] { torch::comms::base::copy_bytes(memory[0], memory[1], bytes, true); }});
}

void add_reductions(std::vector<Case>& cases, size_t bytes, const std::vector<std::byte*>& memory,
                    Dtype dtype, ReduceOpCode op) {
  for (const auto level : simd_levels()) {
    const Reduction reduction(dtype, op, level);
    const size_t count = bytes / size_of(dtype);
    const std::string name = std::string(name_of(dtype)) + " " + std::string(name_of(op)) + " " +
                             std::string(name_of(level));
    const std::vector<const void*> all(memory.begin() + 1, memory.end());
    cases.push_back({name + " 2", 3 * bytes,
                     [=] { reduction.combine(memory[0], memory[1], memory[2], count); }});
    if (op != ReduceOpCode::kProduct)  // which would end in denormals
      cases.push_back({name + " 2 in place", 3 * bytes,
                       [=] { reduction.combine(memory[0], memory[0], memory[2], count); }});
    cases.push_back(
        {name + " 8", 9 * bytes, [=] { reduction.combine_all(memory[0], all, count, kOperands); }});
  }
}

const std::pair<Dtype, ReduceOpCode> kMeasured[] = {
    {Dtype::kFloat32, ReduceOpCode::kSum},      {Dtype::kFloat32, ReduceOpCode::kMax},
    {Dtype::kFloat32, ReduceOpCode::kAverage},  {Dtype::kFloat64, ReduceOpCode::kSum},
    {Dtype::kFloat16, ReduceOpCode::kSum},      {Dtype::kBFloat16, ReduceOpCode::kSum},
    {Dtype::kBFloat16, ReduceOpCode::kMax},     {Dtype::kFloat8E4m3fn, ReduceOpCode::kSum},
    {Dtype::kFloat8E5m2, ReduceOpCode::kSum},   {Dtype::kInt8, ReduceOpCode::kSum},
    {Dtype::kInt8, ReduceOpCode::kAverage},     {Dtype::kInt32, ReduceOpCode::kAverage},
    {Dtype::kInt64, ReduceOpCode::kSum},        {Dtype::kInt64, ReduceOpCode::kProduct},
    {Dtype::kInt64, ReduceOpCode::kAverage},    {Dtype::kUInt8, ReduceOpCode::kProduct},
    {Dtype::kComplex64, ReduceOpCode::kProduct}};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  std::vector<std::vector<Case>> by_size;
  for (const size_t bytes : kSizes) {
    auto& cases = by_size.emplace_back();
    const auto memory = make_operands(bytes);
    add_copies(cases, bytes, memory);
    for (const auto& [dtype, op] : kMeasured)
      if (argc < 3 || name_of(dtype) == argv[2]) add_reductions(cases, bytes, memory, dtype, op);
  }
  for (int round = 0; round < rounds; ++round)
    for (auto& cases : by_size)
      for (auto& one : cases) one.sample();

  std::printf("%-38s %10s %10s %10s   GB/s read and written\n", "", "4 KiB", "256 KiB", "16 MiB");
  for (size_t i = 0; i < by_size[0].size(); ++i) {
    std::printf("%-38s", by_size[0][i].name.c_str());
    for (const auto& cases : by_size) std::printf(" %10.1f", cases[i].gigabytes_s());
    std::printf("\n");
  }
}
