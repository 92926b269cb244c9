#include <torchcomms/backend_wrapper.hpp>

#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "bootstrap/ranks.hpp"

namespace torch::comms {
namespace {

at::Tensor token() { return at::zeros({1}, at::kByte); }

// Waits for all; who has not come is in the result.
std::vector<int> missing(std::vector<std::pair<int, WorkPtr>>& check_ins, bool all) {
  std::vector<int> late;
  for (auto& [rank, work] : check_ins) {
    try {
      work->wait();
    } catch (const CommError&) {
      late.push_back(rank);
      if (!all) break;
    }
  }
  return late;
}

}  // namespace

void BackendWrapper::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  constexpr int kRoot = 0;
  ++collectives_;
  if (comm_->getSize() == 1) return;
  auto mine = token();
  if (comm_->getRank() != kRoot) {
    comm_->send(mine, kRoot, /*async_op=*/false);
    comm_->recv(mine, kRoot, /*async_op=*/false);
    return;
  }
  const auto limit = with_limit<RecvOptions>(options.timeout);
  std::vector<at::Tensor> tokens;
  std::vector<std::pair<int, torch::comms::WorkPtr>> check_ins;
  for (int rank = 1; rank < comm_->getSize(); ++rank) {
    tokens.push_back(token());
    check_ins.emplace_back(rank, comm_->recv(tokens.back(), rank, /*async_op=*/true, limit));
  }
  const auto late = missing(check_ins, wait_all_ranks);
  if (!late.empty()) {
    throw CommError(Errc::kTimeout,
                    bootstrap::name_ranks(late, comm_->getSize()) +
                        " failed to pass monitoredBarrier in " +
                        std::to_string(limit.timeout.count()) + " ms" +
                        (wait_all_ranks ? "" : "; with wait_all_ranks all are named"),
                    {.op = "monitoredBarrier",
                     .comm = std::string(comm_->getCommName()),
                     .rank = comm_->getRank(),
                     .peer = late.front()});
  }
  for (int rank = 1; rank < comm_->getSize(); ++rank) comm_->send(mine, rank, /*async_op=*/false);
}

}  // namespace torch::comms
