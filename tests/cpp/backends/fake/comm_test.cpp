// The one path of an operation, seen through the backend that moves nothing.
#include <torchcomms/comm.hpp>

#include <gtest/gtest.h>

#include <array>

#include <ATen/Functions.h>
#include <torchcomms/base/error.hpp>
#include <torchcomms/factory.hpp>

#include "backends/fake/fake_backend.hpp"
#include "tracing/recorder.hpp"

namespace torch::comms {
namespace {

std::shared_ptr<TorchComm> make_comm(Hints hints = {}) {
  CommOptions options;
  options.hints = std::move(hints);
  return new_comm("fake", at::kCPU, "test", options);
}
TorchCommFake& fake_of(const std::shared_ptr<TorchComm>& comm) {
  return dynamic_cast<TorchCommFake&>(*comm->getBackendImpl());
}

template <class Body>
std::pair<Errc, std::string> error_of(const Body& body) {
  try {
    body();
  } catch (const CommError& error) {
    return {error.code(), error.what()};
  }
  ADD_FAILURE() << "no CommError";
  return {Errc::kInternal, ""};
}

TEST(Factory, AnUnknownBackendIsNamedWithTheKnownOnes) {
  const auto [code, text] = error_of([] { new_comm("nope", at::kCPU, "x"); });
  EXPECT_EQ(code, Errc::kBackendUnavailable);
  EXPECT_NE(text.find("failed to find backend 'nope'"), std::string::npos);
  EXPECT_NE(text.find("fake"), std::string::npos);
}

TEST(Factory, TheFirstRegistrationOfANameWins) {
  auto& factory = TorchCommFactory::get();
  factory.register_backend("twice", [] { return std::make_shared<TorchCommFake>(); });
  factory.register_backend("twice", []() -> std::shared_ptr<TorchCommBackend> { return nullptr; });
  EXPECT_EQ(new_comm("twice", at::kCPU, "x")->getBackend(), "twice");
}

TEST(Factory, ReconfigureIsRefusedBeforeAnyConnection) {
  CommOptions options;
  options.enable_reconfigure = true;
  struct ForGood final : TorchCommFake {
    Capabilities capabilities() const override {
      auto its = TorchCommFake::capabilities();
      its.reconfigure = false;
      return its;
    }
    void init(at::Device, const std::string&, const CommOptions&) override { FAIL(); }
  };
  TorchCommFactory::get().register_backend("for_good", [] { return std::make_shared<ForGood>(); });
  const auto [code, text] = error_of([&] { new_comm("for_good", at::kCPU, "x", options); });
  EXPECT_EQ(code, Errc::kUnsupported);
}

TEST(Fake, HasNothingOfItsWindowsForKernels) {
  const auto window = new_comm("fake", at::kCPU, "x")->new_window(at::zeros({4}));
  const auto refused = [](auto&& call) { EXPECT_EQ(error_of(call).first, Errc::kUnsupported); };
  refused([&] { window->get_device_window(); });
  refused([&] { window->register_local_buffer(at::zeros({4})); });
  refused([&] { window->register_local_buffer_handle(at::zeros({4})); });
  refused([&] { window->deregister_local_buffer(1); });
  refused([&] { window->deregister_local_buffer_handle(1); });
}

TEST(Fake, ReconfigureMakesItTheFirstOfAsManyAsThereAreHandles) {
  CommOptions options;
  options.enable_reconfigure = true;
  const auto comm = new_comm("fake", at::kCPU, "x", options);
  auto& fake = dynamic_cast<TorchCommFake&>(*comm->getBackendImpl());
  EXPECT_TRUE(comm->getRanks().empty());
  EXPECT_EQ(comm->getRank(), -1);
  EXPECT_EQ(error_of([&] { comm->barrier(false); }).first, Errc::kFinalized);
  EXPECT_EQ(error_of([&] { comm->getInitHandle(); }).first, Errc::kUnsupported);

  const auto form = [&](int64_t uuid, std::vector<InitHandle> handles) {
    ReconfigureOptions call;
    call.uuid = uuid;
    call.handles = std::move(handles);
    return comm->reconfigure(call);
  };
  EXPECT_TRUE(form(1, {"a", "b", "c"})->isCompleted());
  EXPECT_EQ(comm->getRanks(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(comm->getSize(), 3);
  comm->barrier(false);
  EXPECT_EQ(error_of([&] { form(2, {}); }).first, Errc::kInvalidArgument);
  EXPECT_EQ(comm->getSize(), 3);

  fake.setReconfigureFailure();
  const auto failed = form(3, {"a"});
  EXPECT_FALSE(failed->isCompleted());
  EXPECT_EQ(error_of([&] { failed->wait(); }).first, Errc::kPeerFailed);
  EXPECT_TRUE(comm->getRanks().empty());
  EXPECT_EQ(error_of([&] { comm->barrier(false); }).first, Errc::kFinalized);

  fake.setReconfigureFailure(false);
  EXPECT_TRUE(form(4, {"a"})->isCompleted());
  EXPECT_EQ(comm->getRanks(), (std::vector<int>{0}));

  const auto for_good = new_comm("fake", at::kCPU, "y");
  EXPECT_EQ(error_of([&] { for_good->reconfigure({}); }).first, Errc::kUnsupported);
}

TEST(Factory, AnAllocatorIsMadeOnceAndMissingOnesAreNamed) {
  EXPECT_EQ(error_of([] { get_mem_allocator("fake"); }).first, Errc::kUnsupported);
}

TEST(Path, HooksSeeTheOperationAndShareItsId) {
  const auto comm = make_comm();
  std::vector<size_t> ids;
  std::vector<OpName> names;
  comm->registerPreHook([&](size_t id, const PreHookArgs& args) {
    ids.push_back(id);
    names.push_back(getOpName(args));
    if (const auto* op = std::get_if<AllReduce>(&args)) {
      EXPECT_EQ(op->tensor.numel(), 3);
      EXPECT_EQ(op->op.type(), RedOpType::MAX);
      EXPECT_TRUE(op->async_op);
    }
  });
  comm->registerPostHook([&](size_t id, const PostHookArgs& args) {
    ids.push_back(id);
    EXPECT_TRUE(std::holds_alternative<CollectivePostHookArgs>(args));
  });
  auto tensor = at::ones({3});
  const auto work = comm->all_reduce(tensor, ReduceOp::MAX, true);
  EXPECT_TRUE(work->isCompleted());
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(names, std::vector<OpName>{OpName::all_reduce});
}

TEST(Path, APreHookThatThrowsKeepsTheOperationBack) {
  const auto comm = make_comm();
  comm->registerPreHook([](size_t, const PreHookArgs&) { throw std::domain_error("no"); });
  auto tensor = at::ones({3});
  EXPECT_THROW(comm->broadcast(tensor, 0, false), std::domain_error);
  EXPECT_TRUE(fake_of(comm).recordedCalls().empty());
}

TEST(Path, APostHookThatThrowsComesAfterTheIssue) {
  const auto comm = make_comm();
  comm->registerPostHook([](size_t, const PostHookArgs&) { throw std::domain_error("no"); });
  auto tensor = at::ones({3});
  EXPECT_THROW(comm->broadcast(tensor, 0, false), std::domain_error);
  EXPECT_EQ(fake_of(comm).recordedCalls().size(), 1u);
}

TEST(Path, ARootOutOfRangeFiresNoHook) {
  const auto comm = make_comm({{"fake::size", "4"}});
  int calls = 0;
  comm->registerPreHook([&](size_t, const PreHookArgs&) { ++calls; });
  auto tensor = at::ones({3});
  const auto [code, text] = error_of([&] { comm->broadcast(tensor, 4, false); });
  EXPECT_EQ(code, Errc::kInvalidArgument);
  EXPECT_NE(text.find("root is 4, allowed is 0 to 3"), std::string::npos) << text;
  EXPECT_EQ(calls, 0);
}

TEST(Path, ATruthValueAsFactorOfIntegersFiresNoHook) {
  const auto comm = make_comm();
  int fired = 0;
  comm->registerPreHook([&](size_t, const PreHookArgs&) { ++fired; });
  auto tensor = at::ones({4}, at::kInt);
  const auto op = ReduceOp::make_nccl_premul_sum(at::ones({1}, at::kBool));
  const auto [code, text] = error_of([&] { comm->all_reduce(tensor, op, false); });
  EXPECT_EQ(code, Errc::kInvalidArgument);
  EXPECT_NE(text.find("a factor of dtype bool cannot scale"), std::string::npos) << text;
  EXPECT_EQ(fired, 0);
}

TEST(Path, ARemovedHookIsSilentAndRemovingTwiceIsFine) {
  auto comm = make_comm();
  int calls = 0;
  const auto handle = comm->registerPreHook([&](size_t, const PreHookArgs&) { ++calls; });
  comm->barrier(false);
  handle->remove();
  handle->remove();
  comm->barrier(false);
  EXPECT_EQ(calls, 1);
  const auto late = comm->registerPreHook([&](size_t, const PreHookArgs&) { ++calls; });
  comm.reset();
  late->remove();
}

TEST(Path, EveryOperationLeavesBeginAndEndInTheRing) {
  const auto comm = make_comm();
  const auto before = tracing::process_ring().recorded();
  auto tensor = at::ones({5});
  comm->all_reduce(tensor, ReduceOp::SUM, false);
  std::vector<tracing::TraceEvent> events;
  for (const auto& [index, event] : tracing::process_ring().read())
    if (index >= before) events.push_back(event);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].phase, tracing::EventPhase::kBegin);
  EXPECT_EQ(events[1].phase, tracing::EventPhase::kEnd);
  EXPECT_EQ(events[0].op.bytes, 20u);
  EXPECT_EQ(events[0].op.sequence, 1u);
  EXPECT_GE(events[1].time_ns, events[0].time_ns);
}

TEST(Path, AHookMayAttachToTheWorkItIsShown) {
  const auto comm = make_comm();
  int waits = 0;
  comm->registerPostHook([&](size_t, const PostHookArgs& args) {
    if (const auto work = std::get<CollectivePostHookArgs>(args).work.lock())
      work->registerWorkWaitPreHook([&] { ++waits; });
  });
  comm->barrier(false)->wait();
  EXPECT_EQ(waits, 1);
  make_comm()->barrier(false)->wait();
  EXPECT_EQ(waits, 1) << "another communicator's work is another work";
}

TEST(Batch, HooksAreToldHowManyOperationsItHas) {
  const auto comm = make_comm({{"fake::size", "2"}});
  size_t seen = 0;
  comm->registerPreHook(
      [&](size_t, const PreHookArgs& args) { seen = std::get<BatchOpIssue>(args).num_ops; });
  auto batch = comm->batch_op_create();
  EXPECT_EQ(error_of([&] { batch.issue(false); }).first, Errc::kInvalidArgument);
  batch.send(at::ones({1}), 1);
  batch.recv(at::ones({1}), 1);
  batch.issue(false);
  EXPECT_EQ(seen, 2u);
  EXPECT_EQ(batch.ops.size(), 2u) << "issuing does not clear the list";
}

TEST(Batch, ItsRecordHasItsPeersWhereTheyAreTwoAtMost) {
  using Peers = std::array<uint16_t, 2>;
  const auto comm = make_comm({{"fake::size", "70000"}});
  const auto recorded = [&](const std::vector<int>& peers) {
    auto batch = comm->batch_op_create();
    for (const int peer : peers) batch.send(at::ones({1}), peer);
    batch.issue(false);
    return tracing::process_ring().read().back().event.op.peers;
  };
  EXPECT_EQ(recorded({7, 7}), (Peers{7, base::kNoPeer}));
  EXPECT_EQ(recorded({7, 9, 7}), (Peers{7, 9}));
  EXPECT_EQ(recorded({7, 9, 3}), (Peers{base::kNoPeer, base::kNoPeer}));
  EXPECT_EQ(recorded({65534, 65535}), (Peers{base::kNoPeer, base::kNoPeer}));
}

TEST(Split, RanksAreChecked) {
  const auto comm = make_comm({{"fake::size", "4"}});
  EXPECT_EQ(error_of([&] { comm->split({0, 4}, "x"); }).first, Errc::kInvalidArgument);
  EXPECT_EQ(error_of([&] { comm->split({0, 1, 1}, "x"); }).first, Errc::kInvalidArgument);
  CommOptions loose;
  loose.enable_reconfigure = true;
  EXPECT_EQ(error_of([&] { comm->split({0, 1}, "x", loose); }).first, Errc::kInvalidArgument);
  const auto child = comm->split({0, 1}, "child");
  EXPECT_EQ(child->getCommName(), "child");
  EXPECT_EQ(child->getBackend(), "fake");
}

TEST(Life, TheFakeMayBeFinalizedTwiceAndUsedAfterwards) {
  const auto comm = make_comm();
  std::vector<size_t> ids;
  comm->registerPreHook([&](size_t id, const PreHookArgs&) { ids.push_back(id); });
  comm->finalize();
  comm->finalize();
  comm->barrier(false);
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids[0], kFinalizeOpId);
  EXPECT_NE(ids[2], kFinalizeOpId);
}

TEST(Life, OpIdsGrowAndCanBeReset) {
  const auto comm = make_comm();
  std::vector<size_t> ids;
  comm->registerPreHook([&](size_t id, const PreHookArgs&) { ids.push_back(id); });
  comm->barrier(false);
  comm->barrier(false);
  EXPECT_LT(ids[0], ids[1]);
  resetGlobalOpIdGenerator();
  comm->barrier(false);
  EXPECT_EQ(ids[2], 0u);
}

TEST(Fake, KeepsTheLastCallsAndOptions) {
  const auto comm = make_comm({{"fake::size", "3"}});
  auto& fake = fake_of(comm);
  auto tensor = at::ones({2});
  SendOptions options;
  options.tag = 7;
  comm->send(tensor, 2, false, options);
  ASSERT_TRUE(fake.getLastSendOptionsForTest());
  EXPECT_EQ(fake.getLastSendOptionsForTest()->tag, 7);
  EXPECT_EQ(fake.getLastSendDstForTest(), 2);
  for (int i = 0; i < 1500; ++i) comm->barrier(false);
  EXPECT_EQ(fake.recordedCalls().size(), TorchCommFake::kMaxRecordedCalls);
  EXPECT_EQ(fake.recordedCalls().back().op, OpName::barrier);
}

TEST(Fake, AbortIsOptIn) {
  const auto comm = make_comm();
  auto& fake = fake_of(comm);
  comm->abort();
  EXPECT_FALSE(comm->isAborted());
  int hooks = 0;
  comm->registerAbortHook([&] { ++hooks; });
  comm->registerAbortHook([] { throw std::runtime_error("swallowed"); });
  fake.enableAbort();
  comm->abort();
  EXPECT_TRUE(comm->isAborted());
  EXPECT_EQ(hooks, 1);
  EXPECT_EQ(error_of([&] { comm->barrier(false); }).first, Errc::kAborted);
}

TEST(Fake, BadHintsAreNamed) {
  EXPECT_EQ(error_of([] { make_comm({{"fake::size", "x"}}); }).first, Errc::kInvalidArgument);
  EXPECT_EQ(error_of([] { make_comm({{"fake::size", "2"}, {"fake::rank", "2"}}); }).first,
            Errc::kInvalidArgument);
}

}  // namespace
}  // namespace torch::comms
