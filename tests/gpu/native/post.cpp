#include "post.hpp"

#include <algorithm>
#include <cstring>

namespace native {
namespace {

constexpr std::byte kPattern{0xa5};

// Bytes of either side are left free.
size_t place(size_t& end, size_t bytes, size_t shift) {
  const size_t at = end + shift;
  end = (at + bytes + 47) / 16 * 16;
  return at;
}

Bytes random_bytes(std::mt19937_64& random, size_t bytes) {
  Bytes data(bytes);
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t bits = random();
    std::memcpy(data.data() + at, &bits, std::min(sizeof bits, bytes - at));
  }
  return data;
}

}  // namespace

MessageSequence::MessageSequence(const World& world, std::vector<Launch> launches,
                                 std::mt19937_64& random)
    : world_(world), launches_(std::move(launches)) {
  const auto n = static_cast<size_t>(world.size());
  std::vector<size_t> ends(n, 64);
  for (const auto& launch : launches_) {
    auto& places = places_.emplace_back();
    for (const auto& spec : launch) {
      const size_t from = place(ends[static_cast<size_t>(spec.from)], spec.bytes, spec.shift_from);
      places.push_back(
          {from, place(ends[static_cast<size_t>(spec.to)], spec.bytes, spec.shift_to)});
    }
  }
  for (size_t r = 0; r < n; ++r) {
    before_.emplace_back(ends[r] + 64, kPattern);
    memory_.emplace_back(world, static_cast<int>(r), ends[r] + 64);
  }
  after_ = before_;
  for (size_t i = 0; i < launches_.size(); ++i)
    for (size_t l = 0; l < launches_[i].size(); ++l) {
      const auto& spec = launches_[i][l];
      const auto from = static_cast<size_t>(spec.from), to = static_cast<size_t>(spec.to);
      const Bytes data = random_bytes(random, spec.bytes);
      const auto put = [&](Bytes& memory, size_t at) {
        std::ranges::copy(data, memory.begin() + static_cast<ptrdiff_t>(at));
      };
      put(before_[from], places_[i][l].from);
      put(after_[from], places_[i][l].from);
      put(after_[to], places_[i][l].to);
    }
  upload();
}

size_t MessageSequence::message_count() const {
  size_t all = 0;
  for (const auto& launch : launches_) all += launch.size();
  return all;
}

void MessageSequence::upload() const {
  for (int r = 0; r < world_.size(); ++r) {
    const auto& bytes = before_[static_cast<size_t>(r)];
    world_.select(r);
    must(cudaMemcpyAsync(memory_[static_cast<size_t>(r)].get(), bytes.data(), bytes.size(),
                         cudaMemcpyHostToDevice, world_[r].stream),
         "cudaMemcpy");
    must(cudaStreamSynchronize(world_[r].stream), "cudaStreamSynchronize");
  }
}

std::vector<kernels::KernelMessage> MessageSequence::messages(int rank, size_t i) const {
  std::vector<kernels::KernelMessage> all;
  char* const memory = memory_[static_cast<size_t>(rank)].get();
  for (size_t l = 0; l < launches_[i].size(); ++l) {
    const auto& spec = launches_[i][l];
    if (spec.from == rank)
      all.push_back(
          {memory + places_[i][l].from, spec.bytes, spec.to, 0, nullptr, spec.requests_zero_copy});
    if (spec.to != rank) continue;
    // In one process all map it at one address.
    char* const to = memory + places_[i][l].to;
    all.push_back({to, spec.bytes, spec.from, 1, spec.offers_target ? to : nullptr, false});
  }
  return all;
}

void MessageSequence::launch(int rank, size_t i, int blocks, uint64_t limit_ns) const {
  world_.select(rank);
  world_.exchange(rank, messages(rank, i), blocks, limit_ns);
}

void MessageSequence::launch_single(int rank, size_t i, int blocks) const {
  world_.select(rank);
  for (const auto& message : messages(rank, i))
    world_.exchange(rank, std::span(&message, 1), blocks, 4'000'000'000);
}

void MessageSequence::check() const {
  world_.check_alive();
  for (int r = 0; r < world_.size(); ++r) {
    const auto& want = after_[static_cast<size_t>(r)];
    Bytes got(want.size());
    world_.select(r);
    must(cudaMemcpy(got.data(), memory_[static_cast<size_t>(r)].get(), got.size(),
                    cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    const auto differs = std::ranges::mismatch(got, want);
    if (differs.in1 == got.end()) continue;
    const auto at = static_cast<size_t>(differs.in1 - got.begin());
    for (size_t i = 0; i < launches_.size(); ++i)
      for (size_t l = 0; l < launches_[i].size(); ++l) {
        const auto& spec = launches_[i][l];
        const size_t to = places_[i][l].to;
        if (spec.to == r && to <= at && at < to + spec.bytes)
          throw std::runtime_error("rank " + std::to_string(r) + ": byte " +
                                   std::to_string(at - to) + " of " + std::to_string(spec.bytes) +
                                   " from rank " + std::to_string(spec.from) + " is wrong");
      }
    throw std::runtime_error("rank " + std::to_string(r) + ": byte " + std::to_string(at) +
                             " of the memory was written");
  }
}

}  // namespace native
