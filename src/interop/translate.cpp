#include "interop/translate.hpp"

#include <torchcomms/base/error.hpp>

namespace torch::comms {
namespace {

[[noreturn]] void refuse(const char* op, const std::string& why) {
  throw CommError(Errc::kInvalidArgument, why, {.op = op});
}

}  // namespace

ReduceOp translate(const c10d::ReduceOp& op) {
  using Theirs = c10d::ReduceOp;
  switch (op.op_) {
    case Theirs::SUM:
      return ReduceOp::SUM;
    case Theirs::AVG:
      return ReduceOp::AVG;
    case Theirs::PRODUCT:
      return ReduceOp::PRODUCT;
    case Theirs::MIN:
      return ReduceOp::MIN;
    case Theirs::MAX:
      return ReduceOp::MAX;
    case Theirs::BAND:
      return ReduceOp::BAND;
    case Theirs::BOR:
      return ReduceOp::BOR;
    case Theirs::BXOR:
      return ReduceOp::BXOR;
    case Theirs::PREMUL_SUM: {
      const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (factor == nullptr)
        refuse("reduce op",
               "PREMUL_SUM has no factor; create the reduce op with _make_nccl_premul_sum(factor)");
      if (factor->tensor_factor.defined())
        return ReduceOp::make_nccl_premul_sum(factor->tensor_factor);
      return ReduceOp::make_nccl_premul_sum(factor->double_factor);
    }
    default:
      refuse("reduce op", "number " + std::to_string(op.op_) + " is not a reduce op");
  }
}

const at::Tensor& require_single(const char* op, const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1)
    refuse(op, std::to_string(tensors.size()) + " tensors, allowed is one per rank");
  return tensors.front();
}

const std::vector<at::Tensor>& require_single(const char* op,
                                              const std::vector<std::vector<at::Tensor>>& lists) {
  if (lists.size() != 1)
    refuse(op, std::to_string(lists.size()) + " lists of tensors, allowed is one per rank");
  return lists.front();
}

const std::vector<at::Tensor>& at_most_one(const char* op,
                                           const std::vector<std::vector<at::Tensor>>& lists) {
  static const std::vector<at::Tensor> none;
  return lists.empty() ? none : require_single(op, lists);
}

void require_same_length(const char* op, size_t outputs, size_t inputs) {
  if (outputs != inputs || outputs == 0)
    refuse(op, std::to_string(outputs) + " outputs for " + std::to_string(inputs) +
                   " inputs, allowed are equal numbers of at least one");
}

void require_first_tensor(const char* op, int64_t root_tensor) {
  if (root_tensor != 0)
    refuse(op, "root tensor " + std::to_string(root_tensor) +
                   ", allowed is 0, because each rank passes one tensor");
}

void require_tag(const char* op, int tag) {
  if (tag < 0 || tag > kLargestTag)
    refuse(op,
           "tag is " + std::to_string(tag) + ", allowed is 0 to " + std::to_string(kLargestTag));
}

at::Tensor flat(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_contiguous() || tensor.layout() != at::kStrided ||
      !tensor.is_non_overlapping_and_dense())
    return tensor;
  return tensor.as_strided({tensor.numel()}, {1});
}

Splits translate(const char* op, const std::vector<int64_t>& split_sizes) {
  Splits rows;
  rows.reserve(split_sizes.size());
  for (const int64_t size : split_sizes) {
    if (size < 0) refuse(op, "split size " + std::to_string(size) + ", allowed is 0 or more");
    rows.push_back(static_cast<uint64_t>(size));
  }
  return rows;
}

}  // namespace torch::comms
