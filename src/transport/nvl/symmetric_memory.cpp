#include "transport/nvl/symmetric_memory.hpp"

#include <utility>

namespace torch::comms::transport::nvl {
namespace {

size_t whole_pages(size_t size_bytes, size_t page) { return (size_bytes + page - 1) / page * page; }

}  // namespace

SymmetricMemory::SymmetricMemoryResult SymmetricMemory::make(const RankContext& context,
                                                             const MemoryRequest& request,
                                                             const AllGatherStrings& all_gather) {
  std::unique_ptr<SymmetricMemory> result(new SymmetricMemory(request.size_bytes));
  if (auto why = result->extend(context, request, 0, all_gather); !why.empty())
    return {nullptr, std::move(why)};
  return {std::move(result), {}};
}

std::string SymmetricMemory::allocate_rest(const RankContext& context, unsigned char value,
                                           const AllGatherStrings& all_gather) {
  if (is_complete()) return {};
  return extend(context, {requested_bytes_ - size_bytes_, "rest of symmetric memory", ""}, value,
                all_gather);
}

std::string SymmetricMemory::extend(const RankContext& context, const MemoryRequest& request,
                                    unsigned char value, const AllGatherStrings& all_gather) {
  std::vector<gpu::ShareableMemory> parts;
  size_t part_bytes = 0;
  const auto address = [&](int rank) {
    return ranges_[static_cast<size_t>(rank)].at() + size_bytes_;
  };
  const HandleExchange exchange{
      .export_memory = [&](size_t first_bytes) -> gpu::ExportedMemory {
        const size_t page =
            gpu::ShareableMemory::granularity_bytes(*context.driver, context.device);
        part_bytes = whole_pages(first_bytes % page == 0 ? first_bytes : request.size_bytes, page);
        while (ranges_.size() < static_cast<size_t>(context.size))
          ranges_.emplace_back(context.driver, whole_pages(requested_bytes_, page));
        parts.push_back(gpu::ShareableMemory::create(context.driver, *context.runtime,
                                                     context.device, part_bytes,
                                                     address(context.rank), value));
        return {parts.back().export_descriptor(), {.has_descriptor = 1}};
      },
      .import_memory =
          [&](int rank, const gpu::ExportedMemory& theirs) {
            parts.push_back(gpu::ShareableMemory::import(
                context.driver, context.device, theirs.descriptor, part_bytes, address(rank)));
          }};
  if (auto why = exchange.run(context, request, all_gather); !why.empty()) return why;
  for (auto& part : parts) parts_.push_back(std::move(part));
  size_bytes_ += part_bytes;
  return {};
}

}  // namespace torch::comms::transport::nvl
