#include "core/observe/operation_observer.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/manual_backend.hpp"

namespace torch::comms {
namespace {

// Writes down what it sees. Its tokens count from `first`.
class Listing final : public OperationObserver {
 public:
  explicit Listing(uint64_t first = 0) : first_(first) {}

  uint64_t on_begin(const base::OpRecord& record, const Operation& operation) noexcept override {
    seen += "begin " + std::string(opToString(getOpName(operation))) + " ";
    numbers.push_back(record.matching_sequence);
    return first_ + numbers.size() - 1;
  }
  void on_start(uint64_t token) noexcept override {
    seen += "start " + std::to_string(token) + " ";
  }
  void on_end(uint64_t token, const base::OpRecord& record, bool ok) noexcept override {
    EXPECT_EQ(record.matching_sequence, numbers[token - first_]);
    seen += (ok ? "done " : "failed ") + std::to_string(token) + " ";
  }
  void on_refused(const base::OpRecord& record, const Operation& operation) noexcept override {
    seen += "refused " + std::string(opToString(getOpName(operation))) + " ";
    refused.emplace_back(record.sequence, record.matching_sequence);
  }
  void on_split(const std::shared_ptr<TorchComm>& child) noexcept override {
    seen += "split " + std::string(child->getCommName()) + " ";
  }

  std::string seen;
  std::vector<uint64_t> numbers;
  std::vector<std::pair<uint64_t, uint64_t>> refused;

 private:
  const uint64_t first_;
};

struct Observed : ManualComm {
  Observed() : ManualComm("observed"), handle(register_observer(*comm, list)) {}

  const std::shared_ptr<Listing> list = std::make_shared<Listing>();
  const std::unique_ptr<RemovableHandle> handle;
};

TEST(OperationObserver, SeesASynchronousOperationBeginAndEnd) {
  Observed its;
  its.comm->barrier(false);
  EXPECT_EQ(its.list->seen, "begin barrier done 0 ");
}

TEST(OperationObserver, SeesTheStartAndTheEndOfAWork) {
  Observed its;
  auto& work = its.all_reduce();
  EXPECT_EQ(its.list->seen, "begin all_reduce ");
  work.setStatus(WorkStatus::INPROGRESS);
  work.setStatus(WorkStatus::TIMEDOUT);
  EXPECT_EQ(its.list->seen, "begin all_reduce start 0 start 0 failed 0 ");
}

// A work that is under way, or has ended, when the backend returns it.
class Early final : public ManualBackend {
 public:
  using ManualBackend::ManualBackend;
  WorkPtr all_reduce(at::Tensor&, const ReduceOp&, bool, const AllReduceOptions&) override {
    auto work = c10::make_intrusive<ManualWork>();
    work->setStatus(status);
    return works.emplace_back(std::move(work));
  }
  WorkStatus status = WorkStatus::INPROGRESS;
};

TEST(OperationObserver, SeesAStartThatCameBeforeTheWork) {
  const auto backend = std::make_shared<Early>("early");
  const auto comm = TorchComm::wrap(backend, "manual");
  const auto list = std::make_shared<Listing>();
  register_observer(*comm, list);
  auto tensor = at::ones({1});
  comm->all_reduce(tensor, RedOpType::SUM, true);
  EXPECT_EQ(list->seen, "begin all_reduce start 0 ");
  backend->works.back()->setStatus(WorkStatus::COMPLETED);
  EXPECT_EQ(list->seen, "begin all_reduce start 0 done 0 ");
  list->seen.clear();
  backend->status = WorkStatus::ERROR;
  comm->all_reduce(tensor, RedOpType::SUM, true);
  EXPECT_EQ(list->seen, "begin all_reduce start 1 failed 1 ");
}

TEST(OperationObserver, SeesACallThatThrowsAsFailed) {
  class Raising final : public ManualBackend {
   public:
    using ManualBackend::ManualBackend;
    WorkPtr barrier(bool, const BarrierOptions&) override { throw std::runtime_error("no"); }
  };
  const auto comm = TorchComm::wrap(std::make_shared<Raising>("raising"), "manual");
  const auto list = std::make_shared<Listing>();
  register_observer(*comm, list);
  EXPECT_THROW(comm->barrier(false), std::runtime_error);
  EXPECT_EQ(list->seen, "begin barrier failed 0 ");
}

TEST(OperationObserver, SeesASplitAndItsChild) {
  Observed its;
  const auto child = its.comm->split({0}, "child");
  EXPECT_EQ(its.list->seen, "begin split split child done 0 ");
  child->barrier(false);
  EXPECT_EQ(its.list->seen, "begin split split child done 0 ") << "a child has its own observers";
}

TEST(OperationObserver, ARefusedOperationGivesItsNumbersToTheNext) {
  class WithSelfMessages final : public ManualBackend {
   public:
    using ManualBackend::ManualBackend;
    Capabilities capabilities() const override {
      auto all = ManualBackend::capabilities();
      all.self_messages = true;
      return all;
    }
  };
  const auto comm = TorchComm::wrap(std::make_shared<WithSelfMessages>("refused"), "manual");
  const auto list = std::make_shared<Listing>();
  register_observer(*comm, list);
  comm->barrier(false);
  const auto at_self = at::ones({1});
  const std::vector<std::function<void()>> calls = {
      [&] { comm->barrier(false); },
      [&] { comm->send(at_self, 0, false); },
      [&] {
        auto batch = comm->batch_op_create();
        batch.send(at_self, 0);
        batch.issue(false);
      },
      [&] { comm->split({0}, "child"); },
  };
  for (const auto& call : calls) {
    list->seen.clear();
    const auto refuse =
        comm->registerPreHook([](size_t, const PreHookArgs&) { throw std::runtime_error("no"); });
    EXPECT_THROW(call(), std::runtime_error);
    EXPECT_EQ(list->seen.rfind("refused ", 0), 0U) << list->seen;
    refuse->remove();
    call();
    EXPECT_EQ(list->refused.back(),
              std::pair(uint64_t{list->numbers.size()}, list->numbers.back()));
  }
}

TEST(OperationObserver, MayBeSeveralEachWithItsTokens) {
  Observed its;
  const std::vector<uint64_t> firsts = {100, 200, 300};
  std::vector<std::shared_ptr<Listing>> more;
  for (const auto first : firsts) {
    more.push_back(std::make_shared<Listing>(first));
    register_observer(*its.comm, more.back());
  }
  auto& work = its.all_reduce();
  its.comm->barrier(false);
  work.setStatus(WorkStatus::COMPLETED);
  for (size_t i = 0; i < firsts.size(); ++i) {
    const auto first = std::to_string(firsts[i]), second = std::to_string(firsts[i] + 1);
    EXPECT_EQ(more[i]->seen, "begin all_reduce begin barrier done " + second + " start " + first +
                                 " done " + first + " ");
  }
}

TEST(OperationObserver, ThatIsRemovedSeesTheEndOfWhatItSawBegin) {
  Observed its;
  auto& work = its.all_reduce();
  its.handle->remove();
  its.comm->barrier(false);
  work.setStatus(WorkStatus::COMPLETED);
  EXPECT_EQ(its.list->seen, "begin all_reduce start 0 done 0 ");
  EXPECT_EQ(its.list.use_count(), 2) << "the work holds it";
  its.backend->works.clear();
  EXPECT_EQ(its.list.use_count(), 1);
}

TEST(OperationObserver, SeesTheEndOfAWorkThatOutlivesTheCommunicator) {
  Observed its;
  auto& work = its.all_reduce();
  its.comm.reset();
  work.setStatus(WorkStatus::COMPLETED);
  EXPECT_EQ(its.list->seen, "begin all_reduce start 0 done 0 ");
}

TEST(OperationObserver, HoldsNoNumberOfAnOperationInsideAPreHook) {
  Observed its;
  bool inside = false;
  its.comm->registerPreHook([&](size_t, const PreHookArgs&) {
    if (std::exchange(inside, true)) return;
    its.comm->barrier(false);
    throw std::runtime_error("no");
  });
  EXPECT_THROW(its.comm->barrier(false), std::runtime_error);
  its.comm->barrier(false);
  EXPECT_EQ(its.list->numbers, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(its.list->refused.back().second, 2U);
}

}  // namespace
}  // namespace torch::comms
