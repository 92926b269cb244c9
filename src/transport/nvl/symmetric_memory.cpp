#include "transport/nvl/symmetric_memory.hpp"

#include <optional>
#include <utility>

namespace torch::comms::transport::nvl {

SymmetricMemory::Outcome SymmetricMemory::make(const Seat& seat, const Wanted& wanted,
                                               const Exchange& exchange) {
  std::vector<std::optional<gpu::MappableMemory>> pieces(static_cast<size_t>(seat.size));
  auto& own = pieces[static_cast<size_t>(seat.rank)];
  const Meeting meeting{.bring = [&]() -> gpu::Export {
                          own.emplace(gpu::MappableMemory::create(seat.driver, *seat.runtime,
                                                                  seat.device, wanted.size_bytes));
                          return {own->share(), {.by_descriptor = 1}};
                        },
                        .take =
                            [&](int rank, const gpu::Export& theirs) {
                              pieces[static_cast<size_t>(rank)].emplace(gpu::MappableMemory::adopt(
                                  seat.driver, seat.device, theirs.descriptor, own->size_bytes()));
                            }};
  if (auto why = meeting.run(seat, wanted, exchange); !why.empty())
    return {nullptr, std::move(why)};
  std::unique_ptr<SymmetricMemory> made(new SymmetricMemory());
  for (auto& piece : pieces) made->pieces_.push_back(std::move(*piece));
  return {std::move(made), {}};
}

}  // namespace torch::comms::transport::nvl
