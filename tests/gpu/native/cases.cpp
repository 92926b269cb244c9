#include "cases.hpp"

#include <cmath>
#include <cstring>

#include "ctran/kernels/collectives/scaling.hpp"
#include "ctran/reduction/elements.hpp"
#include "ctran/reduction/reduction.hpp"

namespace native {

using ctran::Dtype;
using ctran::ReduceOpCode;
using ctran::Reduction;
using kernels::Collective;

namespace {

constexpr const char* kCollectives[] = {"all_reduce", "all_gather", "reduce_scatter",
                                        "all_to_all", "broadcast",  "reduce",
                                        "gather",     "scatter",    "barrier"};
constexpr const char* kAlgorithmNames[] = {"automatic", "one_shot_ll", "one_shot_line",
                                           "two_shot_line"};

// A part of `bytes` at the index of a rank.
Bytes part(const Bytes& of, size_t bytes, int index) {
  const auto begin = of.begin() + static_cast<ptrdiff_t>(bytes * static_cast<size_t>(index));
  return {begin, begin + static_cast<ptrdiff_t>(bytes)};
}

Bytes reduced(const Case& c, std::span<const Bytes> inputs, std::span<const Bytes> factors) {
  const Reduction reduction(c.dtype, c.op);
  std::vector<Bytes> scaled(inputs.begin(), inputs.end());
  if (c.op == ReduceOpCode::kPremulSum)
    for (size_t r = 0; r < scaled.size(); ++r) {
      const auto factor = c.factor_in_memory ? kernels::factor_at(c.dtype, factors[r].data())
                                             : kernels::factor_from(kFactorValue);
      reduction.scale(scaled[r].data(), inputs[r].data(), c.count,
                      {factor.real, factor.imaginary, factor.integer});
    }
  std::vector<const void*> operands;
  for (const auto& input : scaled) operands.push_back(input.data());
  Bytes result(inputs[0].size());
  const ReduceOpCode op = c.op == ReduceOpCode::kPremulSum ? ReduceOpCode::kSum : c.op;
  Reduction(c.dtype, op)
      .combine_all(result.data(), operands, c.count, static_cast<uint32_t>(inputs.size()));
  return result;
}

template <class T>
void write_numbers(std::mt19937_64& random, Bytes& bytes) {
  std::uniform_real_distribution<T> usual(-2, 2);
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    if (random() % 4 == 0) continue;
    T value = usual(random);
    if (random() % 64 == 0) value = T{-0.0};
    if (random() % 256 == 0) value = std::numeric_limits<T>::quiet_NaN();
    std::memcpy(bytes.data() + i, &value, sizeof value);
  }
}

}  // namespace

std::string Case::text() const {
  return std::string(kCollectives[static_cast<size_t>(collective)]) + " " +
         kAlgorithmNames[static_cast<size_t>(algorithm)] + " " +
         std::string(ctran::name_of(dtype)) + " " + std::string(ctran::name_of(op)) + " count " +
         std::to_string(count) + " root " + std::to_string(root) + " blocks " +
         std::to_string(blocks) + (in_place ? " in place" : "") + " shift " +
         std::to_string(shift) + " shift by rank " + std::to_string(shift_by_rank) +
         (factor_in_memory ? " factor in memory" : "") +
         (copy_method ? " in a region, carrier " + std::to_string(static_cast<int>(*copy_method))
                      : "");
}

size_t input_count(const Case& c, int ranks, int rank) {
  switch (c.collective) {
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return c.count * static_cast<size_t>(ranks);
    case Collective::kScatter:
      return rank == c.root ? c.count * static_cast<size_t>(ranks) : 0;
    case Collective::kBroadcast:
      return rank == c.root ? c.count : 0;
    case Collective::kBarrier:
      return 0;
    default:
      return c.count;
  }
}

size_t output_count(const Case& c, int ranks, int rank) {
  switch (c.collective) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return c.count * static_cast<size_t>(ranks);
    case Collective::kGather:
      return rank == c.root ? c.count * static_cast<size_t>(ranks) : 0;
    case Collective::kReduce:
      return rank == c.root ? c.count : 0;
    case Collective::kBarrier:
      return 0;
    default:
      return c.count;
  }
}

size_t input_in_output(const Case& c, int rank) {
  const bool gathers =
      c.collective == Collective::kAllGather || c.collective == Collective::kGather;
  return gathers ? c.count * static_cast<size_t>(rank) : 0;
}

size_t output_in_input(const Case& c, int rank) {
  const bool scatters =
      c.collective == Collective::kReduceScatter || c.collective == Collective::kScatter;
  return scatters ? c.count * static_cast<size_t>(rank) : 0;
}

Bytes random_input(std::mt19937_64& random, Dtype dtype, size_t count) {
  Bytes bytes(count * ctran::size_of(dtype));
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t bits = random();
    std::memcpy(bytes.data() + i, &bits, std::min<size_t>(8, bytes.size() - i));
  }
  if (dtype == Dtype::kFloat32 || dtype == Dtype::kComplex64) write_numbers<float>(random, bytes);
  if (dtype == Dtype::kFloat64 || dtype == Dtype::kComplex128) write_numbers<double>(random, bytes);
  if (dtype == Dtype::kBool)
    for (auto& byte : bytes) byte &= std::byte{1};
  return bytes;
}

Bytes random_factor(std::mt19937_64& random, Dtype dtype) {
  Bytes factor(ctran::size_of(dtype));
  kernels::visit_scaled(dtype, [&](auto format, bool complex) {
    using F = decltype(format);
    const typename F::Stored parts[] = {F::encode(static_cast<typename F::Lane>(1 + random() % 7)),
                                        F::encode(static_cast<typename F::Lane>(random() % 3))};
    std::memcpy(factor.data(), parts, complex ? sizeof parts : sizeof parts[0]);
  });
  return factor;
}

Bytes expected(const Case& c, int rank, std::span<const Bytes> inputs,
               std::span<const Bytes> factors) {
  const size_t bytes = c.count * ctran::size_of(c.dtype);
  const auto root = static_cast<size_t>(c.root);
  Bytes result;
  switch (c.collective) {
    case Collective::kAllReduce:
      return reduced(c, inputs, factors);
    case Collective::kReduce:
      return rank == c.root ? reduced(c, inputs, factors) : Bytes{};
    case Collective::kReduceScatter: {
      std::vector<Bytes> parts;
      for (const auto& input : inputs) parts.push_back(part(input, bytes, rank));
      return reduced(c, parts, factors);
    }
    case Collective::kBroadcast:
      return inputs[root];
    case Collective::kScatter:
      return part(inputs[root], bytes, rank);
    case Collective::kGather:
      if (rank != c.root) return {};
      [[fallthrough]];
    case Collective::kAllGather:
      for (const auto& input : inputs) result.insert(result.end(), input.begin(), input.end());
      return result;
    case Collective::kAllToAll:
      for (const auto& input : inputs) {
        const Bytes mine = part(input, bytes, rank);
        result.insert(result.end(), mine.begin(), mine.end());
      }
      return result;
    case Collective::kBarrier:
    case Collective::kExchange:
    case Collective::kSignal:
    case Collective::kWaitSignal:
    case Collective::kAllToAllVDynamic:
    case Collective::kQuantizedReduceScatter:
      return {};
  }
  return {};
}

ptrdiff_t first_difference(const Case& c, std::span<const std::byte> got, const Bytes& want) {
  if (got.size() != want.size()) return 0;
  if (got.empty() || std::memcmp(got.data(), want.data(), want.size()) == 0) return -1;
  const size_t element = ctran::size_of(c.dtype);
  for (size_t i = 0; i < want.size(); i += element) {
    if (std::memcmp(got.data() + i, want.data() + i, element) == 0) continue;
    const bool both_nan = kernels::is_reduction(c.collective) &&
                          torch::comms::ctran_test::is_nan(c.dtype, &got[i]) &&
                          torch::comms::ctran_test::is_nan(c.dtype, &want[i]);
    if (!both_nan) return static_cast<ptrdiff_t>(i / element);
  }
  return -1;
}

}  // namespace native
