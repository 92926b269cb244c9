#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "backends/ranks.hpp"
#include "core/comm/dispatch.hpp"
#include "core/staging/staging.hpp"
#include "gpu/cpu_runtime.hpp"

// Ranks as threads, whose tensors are staged for a backend: "the device" is host memory, with
// streams that are threads.
namespace torch::comms::staged_test {

using backends_test::error_of;

// A rank with a current stream of its own, as a program on a GPU has.
struct Program {
  int rank, size;
  std::shared_ptr<TorchCommBackend> backend;
  std::unique_ptr<Staging> staging;
  gpu::NativeStream stream;

  void synchronize() const { gpu::Runtime::cpu().synchronize(stream); }
  void launch(std::function<void()> work) const { gpu::cpu_launch(stream, std::move(work)); }
  // Holds the current stream up until the promise is kept.
  std::shared_ptr<std::promise<void>> close_gate() const {
    auto open = std::make_shared<std::promise<void>>();
    launch([gate = open->get_future().share()] { gate.wait(); });
    return open;
  }

  WorkPtr all_reduce(at::Tensor& tensor, bool async_op,
                     const AllReduceOptions& options = {}) const {
    return staging->run(AllReduce{tensor, ReduceOp::SUM, async_op, options});
  }
  WorkPtr send(const at::Tensor& tensor, int peer, bool async_op) const {
    return staging->run(Send{tensor, peer, async_op, {}});
  }
  WorkPtr recv(at::Tensor& tensor, int peer, bool async_op) const {
    return staging->run(Recv{tensor, peer, async_op, {}});
  }
};

inline std::shared_ptr<CommDevice> host_device() {
  return std::make_shared<CommDevice>(gpu::Runtime::shared_cpu(), at::kCPU, false, 16);
}

// Runs `body` on `size` connected ranks. What one throws fails the test.
template <class Backend>
void on_ranks(int size, const std::function<void(Program&)>& body,
              std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const auto options = backends_test::options_with(c10::make_intrusive<c10d::HashStore>(), timeout);
  backends_test::on_started_threads(
      size,
      [&](int rank) {
        auto backend = std::make_shared<Backend>();
        backend->init(backends_test::launch(rank, size), "world", options);
        return backend;
      },
      [&](int rank, const std::shared_ptr<Backend>& backend) {
        Program program{rank, size, backend, std::make_unique<Staging>(backend, host_device()),
                        gpu::Runtime::cpu().create_stream(false)};
        {
          const gpu::CpuStreamGuard current(program.stream);
          body(program);
          program.staging->drain();
        }
        backend->finalize();
        program.synchronize();
        gpu::Runtime::cpu().destroy_stream(program.stream);
      });
}

inline at::Tensor number(double value, int64_t count = 4) { return at::full({count}, value); }
inline float first(const at::Tensor& tensor) { return tensor.data_ptr<float>()[0]; }

// Calls every operation through `call(op)`, which returns its work, and returns what they have
// written, or left, once `done` says that it is there.
template <class Call, class Done>
Tensors every_operation(int rank, int size, bool async_op, const Call& call, const Done& done) {
  const int64_t n = 5;
  int seed = 0;
  const auto value = [&](int64_t count) {
    return at::arange(count, at::kInt) + (++seed * 1000 + rank * 100);
  };
  const auto list = [&] {
    Tensors tensors;
    for (int i = 0; i < size; ++i) tensors.push_back(value(n));
    return tensors;
  };
  Tensors seen;
  std::vector<WorkPtr> works;
  const auto expect = [&](const WorkPtr& work, const Tensors& tensors) {
    works.push_back(work);
    seen.insert(seen.end(), tensors.begin(), tensors.end());
  };
  const int root = size - 1, next = (rank + 1) % size, before = (rank + size - 1) % size;
  const bool is_root = rank == root;

  auto a = value(n), b = value(n), c = value(n).to(at::kFloat), d = value(n);
  expect(call(AllReduce{a, ReduceOp::MAX, async_op, {}}), {a});
  expect(call(Broadcast{b, root, async_op, {}}), {b});
  const auto scaled = ReduceOp::make_nccl_premul_sum(at::full({1}, rank + 1.0f));
  expect(call(AllReduce{c, scaled, async_op, {}}), {c});
  expect(call(Reduce{d, root, ReduceOp::SUM, async_op, {}}), is_root ? Tensors{d} : Tensors{});

  const auto gathered = list(), gathered_v = list();
  auto in = value(n), out = value(n * size);
  expect(call(AllGather{gathered, in, async_op, {}}), gathered);
  expect(call(AllGatherV{gathered_v, in, async_op, {}}), gathered_v);
  expect(call(AllGatherSingle{out, in, async_op, {}}), {out});

  auto all = value(n * size), own = value(n), own_v = value(n), own_single = value(n);
  const auto parts = list();
  expect(call(ReduceScatter{own, parts, ReduceOp::SUM, async_op, {}}), {own});
  expect(call(ReduceScatterV{own_v, parts, ReduceOp::SUM, async_op, {}}), {own_v});
  expect(call(ReduceScatterSingle{own_single, all, ReduceOp::MIN, async_op, {}}), {own_single});

  auto turned = value(n * size), turned_v = value(n * size);
  const auto turned_list = list();
  // Rows that no split covers stay as they were.
  const Splits splits(static_cast<size_t>(size), 4);
  expect(call(AllToAllSingle{turned, all, async_op, {}}), {turned});
  expect(call(AllToAllVSingle{turned_v, all, splits, splits, async_op, {}}), {turned_v});
  expect(call(AllToAll{turned_list, parts, async_op, {}}), turned_list);

  auto share = value(n), collected = value(n * size);
  const auto slots = list();
  at::Tensor nothing;
  expect(call(Scatter{share, is_root ? parts : Tensors{}, root, async_op, {}}), {share});
  expect(call(Gather{is_root ? slots : Tensors{}, in, root, async_op, {}}), slots);
  expect(call(GatherSingle{is_root ? collected : nothing, in, root, async_op, {}}), {collected});

  auto from_left = value(n), from_right = value(n * size), empty = at::empty({0});
  if (size > 1) {
    const std::vector<P2POp> ops{{P2POpType::SEND, in, next},
                                 {P2POpType::SEND, all, before},
                                 {P2POpType::RECV, from_left, before},
                                 {P2POpType::RECV, from_right, next}};
    expect(call(BatchOpIssue{ops, ops.size(), async_op, {}}), {from_left, from_right});
    auto token = value(n);
    expect(rank == 0   ? call(Send{token, 1, async_op, {}})
           : rank == 1 ? call(Recv{token, 0, async_op, {}})
                       : call(Send{empty, rank, async_op, {}}),
           {token});
  }
  expect(call(AllReduce{empty, ReduceOp::SUM, async_op, {}}), {});
  expect(call(Barrier{async_op, {}}), {});
  for (const auto& work : works) work->wait();
  done();
  return seen;
}

// Staged operations do what the backend does with CPU tensors.
template <class Backend>
void expect_every_operation_does_the_same(bool async_op) {
  on_ranks<Backend>(2, [&](Program& self) {
    const auto want = every_operation(
        self.rank, self.size, false, [&](const auto& op) { return dispatch(*self.backend, op); },
        [] {});
    const auto got = every_operation(
        self.rank, self.size, async_op, [&](const auto& op) { return self.staging->run(op); },
        [&] { self.synchronize(); });
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(at::equal(got[i], want[i])) << "tensor " << i << ": " << got[i] << want[i];
  });
}

}  // namespace torch::comms::staged_test
