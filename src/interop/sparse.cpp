#include "interop/sparse.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>

#include <torchcomms/base/error.hpp>

#include "interop/callbacks.hpp"

namespace torch::comms {
namespace {

constexpr size_t kMaxDims = 64;

// The shape of one rank's tensor as it is sent: a row of numbers that is equal on all ranks except
// for the first number.
struct SparseShape {
  explicit SparseShape(const at::Tensor& tensor) : row(4 + kMaxDims) {
    row[0] = tensor._nnz();
    row[1] = static_cast<int64_t>(tensor.scalar_type());
    row[2] = tensor.sparse_dim();
    row[3] = tensor.dense_dim();
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), row.begin() + 4);
  }
  explicit SparseShape(at::ArrayRef<int64_t> from) : row(from.vec()) {}

  int64_t elements() const { return row[0]; }
  bool is_same_shape(const SparseShape& other) const {
    return std::equal(row.begin() + 1, row.end(), other.row.begin() + 1);
  }
  std::string format() const {
    std::string text =
        c10::toString(static_cast<at::ScalarType>(row[1])) + std::string(" of size [");
    for (int64_t i = 0; i < row[2] + row[3]; ++i)
      text += (i == 0 ? "" : ", ") + std::to_string(row[4 + static_cast<size_t>(i)]);
    return text + "], " + std::to_string(row[2]) + " sparse dimensions";
  }

  std::vector<int64_t> row;
};

std::vector<SparseShape> gather_shapes(TorchComm& comm, const SparseShape& mine,
                                       const AllGatherOptions& options) {
  const auto ranks = static_cast<size_t>(comm.getSize());
  const auto width = mine.row.size();
  auto all = at::empty({comm.getSize() * static_cast<int64_t>(width)}, at::kLong);
  AllGatherSingleOptions single;
  single.hints = options.hints;
  single.timeout = options.timeout;
  comm.all_gather_single(all, at::tensor(mine.row), /*async_op=*/false, single);
  std::vector<SparseShape> shapes;
  shapes.reserve(ranks);
  const at::ArrayRef<int64_t> rows(all.const_data_ptr<int64_t>(), ranks * width);
  for (size_t rank = 0; rank < ranks; ++rank) shapes.emplace_back(rows.slice(rank * width, width));
  for (size_t rank = 0; rank < ranks; ++rank)
    if (!shapes[rank].is_same_shape(mine))
      throw CommError(Errc::kMismatch,
                      "rank " + std::to_string(rank) + " passes " + shapes[rank].format() +
                          ", this rank passes " + mine.format() + "; all ranks must pass the same",
                      {.op = "allreduce",
                       .comm = std::string(comm.getCommName()),
                       .rank = comm.getRank(),
                       .peer = static_cast<int>(rank)});
  return shapes;
}

// Returns: one output per rank for a tensor that has one row per sparse element of the rank.
std::vector<at::Tensor> rows_for(const std::vector<SparseShape>& shapes, const at::Tensor& mine) {
  std::vector<at::Tensor> all;
  auto sizes = mine.sizes().vec();
  for (const auto& shape : shapes) {
    sizes[0] = shape.elements();
    all.push_back(at::empty(sizes, mine.options()));
  }
  return all;
}

// Computes the sum on a callback thread that is never joined. Destroying a Python tensor may need
// the GIL, which the thread that drops the work may hold.
class SparseSumWork final : public TorchWork {
 public:
  static WorkPtr start(std::function<void()> add) {
    auto work = c10::make_intrusive<SparseSumWork>();
    work->setStatus(WorkStatus::INPROGRESS);
    run_callback([work, add = std::move(add)]() mutable {
      auto status = WorkStatus::COMPLETED;
      std::exception_ptr error;
      try {
        add();
      } catch (const CommError& failure) {
        status = failure.code() == Errc::kTimeout ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
        error = std::current_exception();
      } catch (...) {
        status = WorkStatus::ERROR;
        error = std::current_exception();
      }
      add = nullptr;
      work->setStatus(status, error);
    });
    return work;
  }

  void wait() override {
    runWaitPreHooks();
    waitForTerminal(std::chrono::milliseconds::max());
    runWaitPostHooks();
    rethrowIfFailed();
  }
  void waitBlocking() override { wait(); }
};

}  // namespace

WorkPtr all_reduce_sparse(const std::shared_ptr<TorchComm>& comm, const at::Tensor& tensor,
                          const ReduceOp& op, bool async_op, const AllGatherOptions& options) {
  const bool mean = op.type() == RedOpType::AVG;
  const auto refuse = [&](const std::string& why) {
    throw CommError(Errc::kUnsupported, why,
                    {.op = "allreduce", .comm = std::string(comm->getCommName())});
  };
  if (tensor.layout() != at::kSparse)
    refuse("tensor has layout " + std::string(c10::str(tensor.layout())) +
           ", allowed are strided and sparse COO");
  if (!mean && op.type() != RedOpType::SUM)
    refuse("a sparse tensor can be reduced only by SUM or AVG");

  const at::NoGradGuard no_grad;
  const auto own = tensor.coalesce();
  const auto shapes = gather_shapes(*comm, SparseShape(own), options);
  const auto positions = own._indices().t().contiguous();
  const auto values = own._values().contiguous();
  auto all_positions = rows_for(shapes, positions);
  auto all_values = rows_for(shapes, values);
  const std::vector<WorkPtr> moves{comm->all_gather_v(all_positions, positions, async_op, options),
                                   comm->all_gather_v(all_values, values, async_op, options)};

  auto add = [moves, all_positions = std::move(all_positions), all_values = std::move(all_values),
              tensor, mean] {
    const at::NoGradGuard inside;
    for (const auto& work : moves) work->wait();
    auto sum =
        at::sparse_coo_tensor(at::cat(all_positions).t(), at::cat(all_values), tensor.sizes())
            .coalesce();
    if (mean) sum._values().div_(static_cast<int64_t>(all_values.size()));
    at::Tensor(tensor).copy_(sum);
  };
  if (async_op) return SparseSumWork::start(std::move(add));
  add();
  return completedWork();
}

}  // namespace torch::comms
