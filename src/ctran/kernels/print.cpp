#include "ctran/kernels/print.hpp"

#include <initializer_list>

#include "ctran/kernels/cells.hpp"

namespace torch::comms::ctran::kernels {
namespace {

// Every part changes about half of all bits [Steele, Lea, Flood, OOPSLA 2014].
uint64_t mixed(std::initializer_list<uint64_t> parts) {
  uint64_t all = 0;
  for (const uint64_t part : parts) {
    all += part + 0x9e3779b97f4a7c15;
    all = (all ^ all >> 30) * 0xbf58476d1ce4e5b9;
    all = (all ^ all >> 27) * 0x94d049bb133111eb;
    all ^= all >> 31;
  }
  return all;
}

constexpr uint64_t kByTeam = 0, kByRegion = 1;

uint64_t root_of(const Call& call) {
  return is_rooted(call.collective) ? static_cast<uint64_t>(call.root) : 0;
}

}  // namespace

uint64_t print_of(const Call& call, uint64_t how) noexcept {
  const auto collective = static_cast<uint64_t>(call.collective);
  if (call.collective == Collective::kBarrier) return mixed({kByTeam, collective});
  const bool reduces = is_reduction(call.collective);
  return mixed({kByTeam, collective, call.count * size_of(call.dtype),
                reduces ? static_cast<uint64_t>(call.dtype) : 0,
                reduces ? static_cast<uint64_t>(call.op) : 0, root_of(call), how});
}

uint64_t print_of(const QuantizedReduceScatter& call, uint64_t how) noexcept {
  return mixed({kByTeam, static_cast<uint64_t>(Collective::kQuantizedReduceScatter), call.count,
                call.averages ? uint64_t{1} : 0, how});
}

uint64_t print_of(const RegionCall& call) noexcept {
  return mixed({kByRegion, static_cast<uint64_t>(call.call.collective), root_of(call.call)});
}

}  // namespace torch::comms::ctran::kernels
