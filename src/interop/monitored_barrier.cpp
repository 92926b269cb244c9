#include <torchcomms/backend_wrapper.hpp>

#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <torchcomms/base/error.hpp>

#include "interop/profiler_span.hpp"

namespace torch::comms {
namespace {

constexpr int kRoot = 0;
constexpr int64_t kAllArrived =
    -1;  // otherwise rank 0 replies with the first rank that did not arrive

// Returns: the options with the tag of this barrier, which differs from all tags of the program's
// own messages.
template <class Options>
Options own(Options options) {
  options.tag = kOwnTag;
  return options;
}

at::Tensor make_message(int64_t content = kAllArrived) { return at::full({1}, content, at::kLong); }

// The arrivals that rank 0 has observed.
struct CheckIns {
  struct BarrierCheckIn {
    int rank;
    at::Tensor message;
    WorkPtr work;
  };
  std::vector<BarrierCheckIn> all;
  std::vector<int> arrived, missing;
  std::optional<CommError> first_error;  // of the first rank that did not arrive in time

  void wait() {
    for (auto& [rank, letter, work] : all) try {
        work->wait();
        arrived.push_back(rank);
      } catch (const CommError& error) {
        missing.push_back(rank);
        if (!first_error) first_error = error;
      }
  }
};

// Returns: "Rank 3" for the first rank only, "Ranks 1, 2, 3" for all of them, also "Ranks 3" for a
// single one. The words match those of torch's Gloo group, because programs search for them.
std::string format_ranks(const std::vector<int>& ranks, bool all) {
  if (!all) return "Rank " + std::to_string(ranks.front());
  std::string text = "Ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

void BackendWrapper::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const ProfilerSpan shown(*comm_, "monitored_barrier", {});
  ++collectives_;
  if (comm_->getSize() == 1) return;
  if (comm_->getRank() == kRoot)
    wait_for_check_ins(options, wait_all_ranks);
  else
    send_check_in();
}

void BackendWrapper::send_check_in() {
  const int rank = comm_->getRank();
  const auto fail = [&](Errc code, const std::string& why) {
    throw CommError(code,
                    "Rank " + std::to_string(rank) +
                        " successfully reached monitoredBarrier, but received errors while waiting "
                        "for send/recv from rank 0. " +
                        why,
                    {.op = "monitoredBarrier",
                     .comm = std::string(comm_->getCommName()),
                     .rank = rank,
                     .peer = kRoot});
  };
  auto answer = make_message();
  try {
    comm_->send(make_message(), kRoot, /*async_op=*/false,
                own(with_timeout<SendOptions>(torch::comms::kNoTimeout)));
    comm_->recv(answer, kRoot, /*async_op=*/false,
                own(with_timeout<RecvOptions>(torch::comms::kNoTimeout)));
  } catch (const CommError& error) {
    fail(error.code(),
         "Please check rank 0 logs for faulty rank. Its error here: " + std::string(error.what()));
  }
  if (const auto late = answer.item<int64_t>(); late != kAllArrived)
    fail(Errc::kTimeout, "Rank 0 reports that rank " + std::to_string(late) + " did not arrive");
}

void BackendWrapper::wait_for_check_ins(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const auto fail = [&](Errc code, const std::string& why, int peer) {
    throw CommError(code, why,
                    {.op = "monitoredBarrier",
                     .comm = std::string(comm_->getCommName()),
                     .rank = kRoot,
                     .peer = peer});
  };
  if (options.timeout == std::chrono::milliseconds::zero())
    fail(
        Errc::kTimeout,
        "Rank 0 timed out in monitoredBarrier after 0 ms. No rank can arrive within a timeout of 0",
        -1);
  const auto limit = own(with_timeout<RecvOptions>(options.timeout));
  CheckIns seen;
  for (int rank = 1; rank < comm_->getSize(); ++rank) {
    auto& one = seen.all.emplace_back(CheckIns::BarrierCheckIn{rank, make_message(), nullptr});
    one.work = comm_->recv(one.message, rank, /*async_op=*/true, limit);
  }
  seen.wait();
  const auto answer = make_message(seen.missing.empty() ? kAllArrived : seen.missing.front());
  for (const int rank : seen.arrived) try {
      comm_->send(answer, rank, /*async_op=*/false,
                  own(with_timeout<SendOptions>(torch::comms::kNoTimeout)));
    } catch (const CommError&) {
      if (seen.missing.empty()) throw;  // otherwise the error below reports the first cause
    }
  if (seen.missing.empty()) return;
  const std::string limited = limit.timeout > torch::comms::kNoTimeout
                                  ? " in " + std::to_string(limit.timeout.count()) + " ms"
                                  : "";
  fail(seen.first_error->code(),
       "[Rank 0]: " + format_ranks(seen.missing, wait_all_ranks) +
           " failed to pass monitoredBarrier" + limited +
           (wait_all_ranks ? "" : "; wait_all_ranks=True lists all failed ranks") + ": " +
           seen.first_error->what(),
       seen.missing.front());
}

}  // namespace torch::comms
