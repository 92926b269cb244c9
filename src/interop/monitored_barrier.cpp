#include <torchcomms/backend_wrapper.hpp>

#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <torchcomms/base/error.hpp>

#include "interop/span.hpp"

namespace torch::comms {
namespace {

constexpr int kRoot = 0;
constexpr int64_t kAllCame = -1;  // else rank 0 answers with the first rank that did not

// Beside the program's messages, which may be on their way with any other tag.
template <class Options>
Options own(Options options) {
  options.tag = kOwnTag;
  return options;
}

at::Tensor letter(int64_t content = kAllCame) { return at::full({1}, content, at::kLong); }

// What rank 0 has seen of the others.
struct CheckIns {
  struct One {
    int rank;
    at::Tensor letter;
    WorkPtr work;
  };
  std::vector<One> all;
  std::vector<int> here, late;
  std::optional<CommError> why;  // of the first late one

  void wait() {
    for (auto& [rank, letter, work] : all) try {
        work->wait();
        here.push_back(rank);
      } catch (const CommError& error) {
        late.push_back(rank);
        if (!why) why = error;
      }
  }
};

// Returns: "Rank 3" for the first rank alone, "Ranks 1, 2, 3" for all of them, "Ranks 3" where all
// are one. Programs search for the words that torch's Gloo group has.
std::string named(const std::vector<int>& ranks, bool all) {
  if (!all) return "Rank " + std::to_string(ranks.front());
  std::string text = "Ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

void BackendWrapper::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const Span shown(*comm_, "monitored_barrier", {});
  ++collectives_;
  if (comm_->getSize() == 1) return;
  if (comm_->getRank() == kRoot)
    await_check_ins(options, wait_all_ranks);
  else
    check_in();
}

void BackendWrapper::check_in() {
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
  auto answer = letter();
  try {
    comm_->send(letter(), kRoot, /*async_op=*/false,
                own(with_limit<SendOptions>(torch::comms::kNoTimeout)));
    comm_->recv(answer, kRoot, /*async_op=*/false,
                own(with_limit<RecvOptions>(torch::comms::kNoTimeout)));
  } catch (const CommError& error) {
    fail(error.code(),
         "Please check rank 0 logs for faulty rank. Its error here: " + std::string(error.what()));
  }
  if (const auto late = answer.item<int64_t>(); late != kAllCame)
    fail(Errc::kTimeout, "Rank 0 says that rank " + std::to_string(late) + " did not come");
}

void BackendWrapper::await_check_ins(const c10d::BarrierOptions& options, bool wait_all_ranks) {
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
        "Rank 0 timed out in monitoredBarrier after 0 ms. No rank can check in within a limit of 0",
        -1);
  const auto limit = own(with_limit<RecvOptions>(options.timeout));
  CheckIns seen;
  for (int rank = 1; rank < comm_->getSize(); ++rank) {
    auto& one = seen.all.emplace_back(CheckIns::One{rank, letter(), nullptr});
    one.work = comm_->recv(one.letter, rank, /*async_op=*/true, limit);
  }
  seen.wait();
  const auto answer = letter(seen.late.empty() ? kAllCame : seen.late.front());
  for (const int rank : seen.here) try {
      comm_->send(answer, rank, /*async_op=*/false,
                  own(with_limit<SendOptions>(torch::comms::kNoTimeout)));
    } catch (const CommError&) {
      if (seen.late.empty()) throw;  // else what is told below is what went wrong first
    }
  if (seen.late.empty()) return;
  const std::string limited = limit.timeout > torch::comms::kNoTimeout
                                  ? " in " + std::to_string(limit.timeout.count()) + " ms"
                                  : "";
  fail(seen.why->code(),
       "[Rank 0]: " + named(seen.late, wait_all_ranks) + " failed to pass monitoredBarrier" +
           limited + (wait_all_ranks ? "" : "; wait_all_ranks=True names all of them") + ": " +
           seen.why->what(),
       seen.late.front());
}

}  // namespace torch::comms
