#pragma once

#include <cstddef>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "ctran/kernels/host/library.hpp"
#include "ctran/kernels/windows/window_collectives.hpp"

// A call to be checked, the data it gets, and what it has to give: reductions by the arithmetic of
// the host.
namespace native {

namespace ctran = torch::comms::ctran;
namespace kernels = torch::comms::ctran::kernels;

struct Case {
  kernels::Collective collective{};
  kernels::KernelAlgorithm algorithm{};
  ctran::Dtype dtype = ctran::Dtype::kFloat32;
  ctran::ReduceOpCode op = ctran::ReduceOpCode::kSum;
  int root = 0;
  int blocks = 0;
  size_t count = 0;
  bool in_place = false;
  size_t shift = 0;  // elements by which memory is off the alignment of 256 bytes
  bool factor_in_memory = false;
  // Then peers write the output themselves, or read the input; else they do not.
  std::optional<kernels::CopyMethod> copy_method = std::nullopt;
  // Of outputs apart from their input, and of reductions' inputs: so many more for each rank.
  size_t shift_by_rank = 0;

  std::string text() const;
};

inline constexpr double kFactorValue = 3;

// Elements of a rank's input and output; 0 where it has none.
size_t input_count(const Case& c, int ranks, int rank);
size_t output_count(const Case& c, int ranks, int rank);
// Where the input lies in the output, or the output in the input, in place.
size_t input_in_output(const Case& c, int rank);
size_t output_in_input(const Case& c, int rank);

using Bytes = std::vector<std::byte>;

// Random bits, with numbers of a usual size among them, NaN and -0.
Bytes random_input(std::mt19937_64& random, ctran::Dtype dtype, size_t count);
Bytes random_factor(std::mt19937_64& random, ctran::Dtype dtype);

// Of all ranks' inputs, and of their factors if those are in memory.
Bytes expected(const Case& c, int rank, std::span<const Bytes> inputs,
               std::span<const Bytes> factors);

// The first element that differs, or -1. NaN is NaN; moved data have to be the same bits.
ptrdiff_t first_difference(const Case& c, std::span<const std::byte> got, const Bytes& want);

}  // namespace native
