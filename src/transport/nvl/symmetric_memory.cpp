#include "transport/nvl/symmetric_memory.hpp"

#include <utility>

namespace torch::comms::transport::nvl {
namespace {

size_t whole_pages(size_t size_bytes, size_t page) { return (size_bytes + page - 1) / page * page; }

}  // namespace

SymmetricMemory::SymmetricMemoryResult SymmetricMemory::make(const RankContext& seat,
                                                             const MemoryRequest& wanted,
                                                             const AllGatherStrings& exchange) {
  std::unique_ptr<SymmetricMemory> made(new SymmetricMemory(wanted.size_bytes));
  if (auto why = made->extend(seat, wanted, 0, exchange); !why.empty())
    return {nullptr, std::move(why)};
  return {std::move(made), {}};
}

std::string SymmetricMemory::allocate_rest(const RankContext& seat, unsigned char value,
                                           const AllGatherStrings& exchange) {
  if (is_complete()) return {};
  return extend(seat, {requested_bytes_ - size_bytes_, "rest of symmetric memory", ""}, value,
                exchange);
}

std::string SymmetricMemory::extend(const RankContext& seat, const MemoryRequest& wanted,
                                    unsigned char value, const AllGatherStrings& exchange) {
  std::vector<gpu::ShareableMemory> parts;
  size_t part_bytes = 0;
  const auto place = [&](int rank) {
    return ranges_[static_cast<size_t>(rank)].at() + size_bytes_;
  };
  const HandleExchange meeting{
      .export_memory = [&](size_t first_bytes) -> gpu::ExportedMemory {
        const size_t page = gpu::ShareableMemory::granularity_bytes(*seat.driver, seat.device);
        part_bytes = whole_pages(first_bytes % page == 0 ? first_bytes : wanted.size_bytes, page);
        while (ranges_.size() < static_cast<size_t>(seat.size))
          ranges_.emplace_back(seat.driver, whole_pages(requested_bytes_, page));
        parts.push_back(gpu::ShareableMemory::create(seat.driver, *seat.runtime, seat.device,
                                                     part_bytes, place(seat.rank), value));
        return {parts.back().export_descriptor(), {.has_descriptor = 1}};
      },
      .import_memory =
          [&](int rank, const gpu::ExportedMemory& theirs) {
            parts.push_back(gpu::ShareableMemory::import(
                seat.driver, seat.device, theirs.descriptor, part_bytes, place(rank)));
          }};
  if (auto why = meeting.run(seat, wanted, exchange); !why.empty()) return why;
  for (auto& part : parts) parts_.push_back(std::move(part));
  size_bytes_ += part_bytes;
  return {};
}

}  // namespace torch::comms::transport::nvl
