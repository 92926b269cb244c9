#include "batch.hpp"

#include <algorithm>
#include <cstring>

namespace native {
namespace {

constexpr size_t kAlign = 256;
constexpr std::byte kPattern{0xa5};

size_t after(size_t at, size_t bytes) { return (at + bytes + kAlign) / kAlign * kAlign + kAlign; }

}  // namespace

Batch::Batch(const World& world, std::vector<Case> cases, std::mt19937_64& random)
    : world_(world), cases_(std::move(cases)) {
  const int n = world.size();
  for (const auto& c : cases_) {
    auto& inputs = inputs_.emplace_back();
    auto& factors = factors_.emplace_back();
    for (int r = 0; r < n; ++r) {
      inputs.push_back(random_input(random, c.dtype, input_count(c, n, r)));
      factors.push_back(random_factor(random, c.dtype));
    }
  }
  for (int r = 0; r < n; ++r) {
    std::vector<Place> places;
    size_t end = kAlign;
    for (const auto& c : cases_) {
      const size_t element = ctran::size_of(c.dtype), shift = c.shift * element;
      // The same room on all ranks: some cases promise that their outputs are at one place.
      const auto most = [&](size_t (*count)(const Case&, int, int)) {
        size_t found = 0;
        for (int rank = 0; rank < n; ++rank) found = std::max(found, count(c, n, rank));
        return found;
      };
      const size_t in = most(input_count) * element, out = most(output_count) * element;
      Place place;
      const size_t by_rank = c.shift_by_rank * element, own = by_rank * static_cast<size_t>(r),
                   all = by_rank * static_cast<size_t>(n);
      const bool shifts_input = kernels::is_reduction(c.collective);
      const size_t begin = end + shift + (shifts_input ? own : 0),
                   behind = after(end + shift, in + (shifts_input ? all : 0));
      place.input = place.output = begin;
      if (c.in_place) {
        if (output_count(c, n, r) >= input_count(c, n, r))
          place.input += input_in_output(c, r) * element;
        else
          place.output += output_in_input(c, r) * element;
      } else {
        place.output = behind + shift + own;
      }
      place.factor = behind + shift + after(all, std::max(in, out));
      end = after(place.factor, 16);
      places.push_back(place);
    }
    Bytes before(end, kPattern);
    for (size_t i = 0; i < cases_.size(); ++i) {
      const auto& input = inputs_[i][static_cast<size_t>(r)];
      const auto& factor = factors_[i][static_cast<size_t>(r)];
      std::ranges::copy(input, before.begin() + static_cast<ptrdiff_t>(places[i].input));
      std::ranges::copy(factor, before.begin() + static_cast<ptrdiff_t>(places[i].factor));
    }
    ranks_.push_back({DeviceMemory(world, r, end), std::move(before), std::move(places)});
  }
  upload();
}

void Batch::upload() const {
  for (int r = 0; r < world_.size(); ++r) {
    const auto& rank = ranks_[static_cast<size_t>(r)];
    world_.select(r);
    must(cudaMemcpyAsync(rank.memory.get(), rank.before.data(), rank.before.size(),
                         cudaMemcpyHostToDevice, world_[r].stream),
         "cudaMemcpy");
    must(cudaStreamSynchronize(world_[r].stream), "cudaStreamSynchronize");
  }
}

kernels::KernelCall Batch::call(size_t i, int rank) const {
  const Case& c = cases_[i];
  const auto& of_rank = ranks_[static_cast<size_t>(rank)];
  const Place& place = of_rank.places[i];
  char* memory = of_rank.memory.get();
  kernels::KernelCall call{};
  call.collective = c.collective;
  call.algorithm = c.algorithm;
  call.dtype = c.dtype;
  call.op = c.op;
  call.root = c.root;
  call.blocks = c.blocks;
  call.count = c.count;
  const bool has_output = output_count(c, 2, rank) != 0 || c.count == 0;
  if (input_count(c, 2, rank) != 0) call.input = memory + place.input;
  if (has_output) call.output = memory + place.output;
  if (c.factor_in_memory) call.factor = memory + place.factor;
  call.factor_value = kFactorValue;
  call.timeout_ns = 4'000'000'000;
  return call;
}

void Batch::launch(size_t i, int rank) const {
  world_.select(rank);
  if (cases_[i].copy_method)
    world_.launch(rank, window_call(i, rank));
  else
    world_.launch(rank, call(i, rank));
}

void Batch::launch(int rank) const {
  for (size_t i = 0; i < cases_.size(); ++i) launch(i, rank);
}

bool Batch::goes_by_case() const {
  return world_.shares_gpus() && std::ranges::any_of(cases_, [](const Case& one) {
           return one.copy_method == kernels::CopyMethod::kCopyEngine;
         });
}

kernels::WindowCollectiveCall Batch::window_call(size_t i, int rank) const {
  kernels::WindowCollectiveCall window_call{};
  window_call.call = call(i, rank);
  window_call.copy_method = cases_[i].copy_method.value_or(kernels::CopyMethod::kAutomatic);
  window_call.window_id = static_cast<uint32_t>(i) % 3;
  for (int r = 0; r < world_.size(); ++r) {
    const auto& rank = ranks_[static_cast<size_t>(r)];
    window_call.memory[r] = rank.memory.get();
    window_call.bytes[r] = rank.before.size();
  }
  return window_call;
}

void Batch::check() const {
  world_.check_alive();
  const int n = world_.size();
  for (int r = 0; r < n; ++r) {
    const auto& rank = ranks_[static_cast<size_t>(r)];
    world_.select(r);
    Bytes got(rank.before.size());
    must(cudaMemcpy(got.data(), rank.memory.get(), got.size(), cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    Bytes want = rank.before;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const Case& c = cases_[i];
      const Bytes result = expected(c, r, inputs_[i], factors_[i]);
      const std::span<std::byte> output =
          std::span(got).subspan(rank.places[i].output, result.size());
      const ptrdiff_t wrong = first_difference(c, output, result);
      if (wrong >= 0) {
        const size_t element = ctran::size_of(c.dtype), at = static_cast<size_t>(wrong) * element;
        std::string bits;
        for (size_t b = 0; b < element; ++b) {
          char text[16];
          std::snprintf(text, sizeof text, " %02x/%02x", static_cast<unsigned>(output[at + b]),
                        static_cast<unsigned>(result[at + b]));
          bits += text;
        }
        throw std::runtime_error("rank " + std::to_string(r) + " of " + std::to_string(n) + ", " +
                                 c.text() + ": element " + std::to_string(wrong) +
                                 " is wrong, got/want" + bits);
      }
      std::ranges::copy(output, want.begin() + static_cast<ptrdiff_t>(rank.places[i].output));
    }
    // Everything else is as it was.
    const auto differs = std::ranges::mismatch(got, want);
    if (differs.in1 != got.end()) {
      const auto at = static_cast<size_t>(differs.in1 - got.begin());
      size_t i = 0;
      while (i + 1 < cases_.size() && rank.places[i + 1].input < at + kAlign) ++i;
      throw std::runtime_error("rank " + std::to_string(r) + ", near " + cases_[i].text() +
                               ": byte " + std::to_string(at) + " of the memory was written");
    }
  }
}

}  // namespace native
