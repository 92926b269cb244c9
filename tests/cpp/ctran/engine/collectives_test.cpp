#include "ctran/engine/reference.hpp"
#include "ctran/reduction/reduction.hpp"

namespace torch::comms::ctran::test {
namespace {

struct Format {
  Dtype dtype;
  ReduceOpCode op;
};

bool adds(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kReduceScatter;
}

// Whole numbers and quarters as elements; conversions are the arithmetic's own, which has tests.
std::vector<std::byte> encode(Dtype dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * ctran::size_of(dtype));
  const auto put = [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      const T element = static_cast<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof element);
    }
  };
  switch (dtype) {
    case Dtype::kFloat32:
      put(float{});
      break;
    case Dtype::kFloat64:
      put(double{});
      break;
    case Dtype::kInt8:
      put(int8_t{});
      break;
    case Dtype::kInt64:
      put(int64_t{});
      break;
    default: {  // narrower floating point: rounded once
      const std::vector<float> wide(values.begin(), values.end());
      const void* from = wide.data();
      Reduction(dtype, ReduceOpCode::kSum).finish(bytes.data(), {&from, 1}, wide.size(), 1);
    }
  }
  return bytes;
}

std::vector<double> doubles(const std::vector<int>& values) {
  return {values.begin(), values.end()};
}

// The caller's buffers, whole or in pieces of odd sizes that cut no element.
struct Memory {
  std::vector<std::byte> bytes;
  std::vector<Bytes> pieces;
  std::vector<ConstBytes> const_pieces;
  Memory(std::vector<std::byte> data, size_t element, bool cut) : bytes(std::move(data)) {
    size_t step = cut ? 3 * element : std::max<size_t>(1, bytes.size());
    for (size_t at = 0; at < bytes.size(); at += step, step += cut ? 11 * element : 0)
      pieces.push_back(Bytes(bytes).subspan(at, std::min(step, bytes.size() - at)));
    const_pieces.assign(pieces.begin(), pieces.end());
  }
};

void check(Rank& self, const Case& c, const Format& format, const schedule::Algorithm* algorithm,
           int64_t chunk, bool cut) {
  const int rank = self.rank(), size = self.size();
  const auto element = ctran::size_of(format.dtype);
  Memory input(encode(format.dtype, doubles(input_of(c, rank))), element, cut);
  auto want = encode(format.dtype, output_of(c, rank));
  auto empty = std::vector<std::byte>(want.size(), std::byte{0x5a});
  if (c.operation == Operation::kBroadcast && rank == c.root) empty = want;
  Memory output(std::move(empty), element, cut);
  std::vector<int64_t> offsets = offsets_of(c.counts), arriving = {0};
  auto blocks = Blocks::from_offsets(offsets);
  if (c.operation == Operation::kAllToAll) {
    offsets = {0};
    for (int peer = 0; peer < size; ++peer) {
      offsets.push_back(offsets.back() + row(c, rank, peer));
      arriving.push_back(arriving.back() + row(c, peer, rank));
    }
    blocks = Blocks::from_offsets(offsets);
  }
  EngineCall call{
      .name = schedule::operation_name(c.operation),
      .operation = c.operation,
      .dtype = static_cast<uint8_t>(format.dtype),
      .element_bytes = static_cast<uint32_t>(element),
      .op = c.op,
      .factor = {.real = 2, .imaginary = 0, .integer = 2},
      .root = c.root,
      .blocks = blocks,
      .arriving = c.operation == Operation::kAllToAll ? Blocks::from_offsets(arriving) : Blocks(),
      .input = input.const_pieces,
      .output = output.pieces,
      .timeout = kLong,
      .algorithm = algorithm,
      .chunk = chunk};
  self.group->run(call);
  ASSERT_TRUE(output.bytes == want)
      << schedule::operation_name(c.operation) << " by "
      << (algorithm == nullptr ? "choice" : algorithm->name) << ", " << name_of(format.dtype) << " "
      << name_of(c.op) << ", rank " << rank << " of " << size << ", root " << c.root << ", "
      << want.size() << " bytes" << (cut ? ", in pieces" : "");
}

std::vector<int64_t> counts_of(Operation operation, int size, int64_t each, bool uneven) {
  std::vector<int64_t> counts;
  const int number = operation == Operation::kAllToAll ? size * size : size;
  for (int i = 0; i < number; ++i) counts.push_back(uneven ? each * (i % 3) / 2 + i % 2 : each);
  return counts;
}

void check_algorithms(Rank& self, Operation operation, const schedule::Algorithm* algorithm,
                      int64_t each, bool uneven) {
  const int size = self.size();
  const Case c{operation, size - 1, counts_of(operation, size, each, uneven), ReduceOpCode::kSum};
  if (algorithm != nullptr) {
    const auto offsets = offsets_of(c.counts);
    const std::vector<int64_t> nothing(static_cast<size_t>(size) + 1);
    const auto blocks = Blocks::from_offsets(offsets);
    const bool block = operation == Operation::kGather || operation == Operation::kScatter ||
                       operation == Operation::kAllGather || operation == Operation::kReduceScatter;
    const auto problem = operation == Operation::kAllToAll
                             ? schedule::all_to_all_problem(0, Blocks::from_offsets(nothing),
                                                            Blocks::from_offsets(nothing))
                         : block ? schedule::block_problem(operation, 0, blocks, c.root)
                                 : schedule::vector_problem(operation, 0, size, total(c), c.root);
    if (!algorithm->unsupported_reason(problem).empty()) return;
  }
  const Format format{Dtype::kFloat32, ReduceOpCode::kSum};
  check(self, c, format, algorithm, -1, false);
  check(self, c, format, algorithm, 100, true);
}

class Collectives : public testing::TestWithParam<World> {};

TEST_P(Collectives, EveryAlgorithmGivesWhatOneLoopGives) {
  run(GetParam(), [](Rank& self) {
    for (const auto operation : kCollectives)
      for (const bool uneven : {false, true})
        for (const int64_t each : {0, 1, 517, 9001}) {
          check_algorithms(self, operation, nullptr, each, uneven);
          for (const auto* algorithm : schedule::algorithms())
            if (algorithm->operation == operation)
              check_algorithms(self, operation, algorithm, each, uneven);
        }
  });
}

TEST_P(Collectives, EveryDtypeAndReduceOpIsRoundedOnce) {
  const Format formats[] = {
      {Dtype::kFloat32, ReduceOpCode::kAverage},  {Dtype::kFloat32, ReduceOpCode::kPremulSum},
      {Dtype::kFloat64, ReduceOpCode::kMax},      {Dtype::kBFloat16, ReduceOpCode::kSum},
      {Dtype::kBFloat16, ReduceOpCode::kAverage}, {Dtype::kBFloat16, ReduceOpCode::kPremulSum},
      {Dtype::kFloat16, ReduceOpCode::kAverage},  {Dtype::kFloat8E4m3fn, ReduceOpCode::kSum},
      {Dtype::kFloat8E5m2, ReduceOpCode::kMax},   {Dtype::kInt8, ReduceOpCode::kProduct},
      {Dtype::kInt8, ReduceOpCode::kAverage},     {Dtype::kInt64, ReduceOpCode::kSum}};
  run(GetParam(), [&](Rank& self) {
    for (const auto& format : formats)
      for (const auto* algorithm : schedule::algorithms()) {
        if (!adds(algorithm->operation)) continue;
        const auto vector = schedule::vector_problem(algorithm->operation, 0, self.size(), 300);
        if (algorithm->operation != Operation::kReduceScatter &&
            !algorithm->unsupported_reason(vector).empty())
          continue;
        for (const int64_t each : {1, 2503}) {
          const Case c{algorithm->operation, 0,
                       counts_of(algorithm->operation, self.size(), each, false), format.op};
          check(self, c, format, algorithm, each > 1 ? 640 : 0, each > 1);
        }
      }
  });
}

// In place: input and output are the same memory, where an operation has both.
TEST_P(Collectives, InPlaceGivesTheSame) {
  run(GetParam(), [](Rank& self) {
    const int size = self.size();
    const auto rank = static_cast<size_t>(self.rank());
    for (const size_t count : {5u, 40'000u}) {
      for (const auto* algorithm : schedule::algorithms()) {
        if (algorithm->operation != Operation::kAllReduce) continue;
        if (!algorithm
                 ->unsupported_reason(schedule::vector_problem(algorithm->operation, 0, size,
                                                               static_cast<int64_t>(count)))
                 .empty())
          continue;
        std::vector<float> values(count, static_cast<float>(rank + 1));
        AllReduce reduce(values, size);
        reduce.call.algorithm = algorithm;
        reduce.call.chunk = 999;
        self.group->run(reduce.call);
        ASSERT_TRUE(values == std::vector<float>(count, static_cast<float>(size * (size + 1) / 2)))
            << algorithm->name;
      }
      std::vector<float> all(count * static_cast<size_t>(size), -1);
      std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(rank * count), count,
                  static_cast<float>(rank));
      const auto each = static_cast<int64_t>(count);
      const std::span<const float> own(all.data() + rank * count, count);
      Simple gather(Operation::kAllGather, Blocks::equal(each, size), std::as_bytes(own),
                    bytes_of(all), sizeof(float));
      self.group->run(gather.call);
      for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<float>(i / count));
      const std::span<float> mine(all.data() + rank * count, count);
      Simple scatter(Operation::kReduceScatter, Blocks::equal(each, size),
                     bytes_of(std::as_const(all)), std::as_writable_bytes(mine), sizeof(float));
      scatter.call.dtype = static_cast<uint8_t>(Dtype::kFloat32);
      self.group->run(scatter.call);
      for (const float got : mine)
        ASSERT_EQ(got, static_cast<float>(rank) * static_cast<float>(size));
    }
  });
}

// Values whose sum depends on the order: all ranks, and all runs, have the same bits.
TEST_P(Collectives, SumsHaveTheSameBitsOnAllRanksAndInAllRuns) {
  constexpr size_t kCount = 30'011;
  std::mutex mutex;
  std::map<std::string, std::vector<float>> first;
  for (int repeat = 0; repeat < 2; ++repeat)
    run(GetParam(), [&](Rank& self) {
      for (const auto* algorithm : schedule::algorithms()) {
        if (algorithm->operation != Operation::kAllReduce) continue;
        if (!algorithm
                 ->unsupported_reason(
                     schedule::vector_problem(algorithm->operation, 0, self.size(), kCount))
                 .empty())
          continue;
        std::vector<float> values(kCount);
        for (size_t i = 0; i < kCount; ++i)
          values[i] = 1.0f / static_cast<float>(i + 1 + 17 * static_cast<size_t>(self.rank()));
        AllReduce reduce(values, self.size());
        reduce.call.algorithm = algorithm;
        reduce.call.chunk = 0;
        self.group->run(reduce.call);
        const std::lock_guard lock(mutex);
        const auto& want = first.try_emplace(std::string(algorithm->name), values).first->second;
        EXPECT_EQ(std::memcmp(want.data(), values.data(), kCount * sizeof(float)), 0)
            << algorithm->name;
      }
    });
}

std::vector<World> worlds() {
  if (kSanitized) return {{3, LinkPolicy::kShm}, {2, LinkPolicy::kTcp}};
  return {{1, LinkPolicy::kShm}, {2, LinkPolicy::kShm},   {3, LinkPolicy::kShm},
          {4, LinkPolicy::kShm}, {5, LinkPolicy::kShm},   {2, LinkPolicy::kTcp},
          {3, LinkPolicy::kTcp}, {3, LinkPolicy::kShm, 0}};
}

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, testing::ValuesIn(worlds()), [](const auto& info) {
  return std::string(info.param.links == LinkPolicy::kShm ? "shm" : "tcp") +
         std::to_string(info.param.size) + (info.param.eager_ranks == 0 ? "lazy" : "");
});

}  // namespace
}  // namespace torch::comms::ctran::test
