#pragma once

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

#include "backends/nccl/graphs/kept_storages.hpp"
#include "vendor/communicator.hpp"

// Converts tensors and reductions to arguments of the library. The functions throw CommError
// without context.
namespace torch::comms::nccl {

// The memory of a contiguous tensor as bytes, so that data of every dtype can be transferred.
struct TensorBytes {
  explicit TensorBytes(const at::Tensor& tensor);
  char* data;
  size_t size;
};
// True if the two tensors share memory.
bool overlap(const at::Tensor& a, const at::Tensor& b);
// True if the tensors share no memory, or are the operands of an in-place operation: the smaller
// one is part number `rank` of the larger one.
bool is_in_place_or_disjoint(const at::Tensor& input, const at::Tensor& output, int rank);
// Returns: `input`; or a copy, unless is_in_place_or_disjoint().
at::Tensor copy_input_if_overlapping(const at::Tensor& input, const at::Tensor& output, int rank);
// Returns: `slots`, with copies in place of tensors that share memory with `output`. Slot number
// `rank` is not copied if it is exactly `output`.
std::vector<at::Tensor> copy_if_overlapping(const std::vector<at::Tensor>& slots,
                                            const at::Tensor& output, int rank);

// True if every library can reduce this dtype on every device.
bool is_reducible(at::ScalarType dtype) noexcept;

// Returns: `factor`, if it is a valid factor of PREMUL_SUM: one element of `dtype`, on the CPU or
// on `device`.
// Throws: CommError(kInvalidArgument) otherwise.
at::Tensor factor_element(const at::Tensor& factor, at::ScalarType dtype, const at::Device& device);

// The reduction of one call, as the library's dtype and operation. A PREMUL_SUM operation is
// created in the communicator and destroyed with this object.
class NcclReduction {
 public:
  // Throws: CommError(kUnsupported) for a dtype or reduction that the library does not have.
  NcclReduction(Communicator& communicator, const ReduceOp& op, at::ScalarType dtype);
  ~NcclReduction();
  NcclReduction(const NcclReduction&) = delete;
  NcclReduction& operator=(const NcclReduction&) = delete;

  // Creates the PREMUL_SUM operation in the library.
  // Throws: CommError(kInvalidArgument) for an invalid factor.
  void scale_by(const PreMulSumFactorT& factor, at::ScalarType dtype, const at::Device& device,
                const WaitOptions& wait);

  abi::DataType dtype() const noexcept { return dtype_; }
  abi::RedOp op() const noexcept { return op_; }
  // Adds a factor in device memory to `kept`, because the operation reads it when it runs.
  void retain_factor(KeptStorages& kept) const;

 private:
  Communicator& communicator_;
  abi::DataType dtype_;
  abi::RedOp op_ = abi::RedOp::kSum;
  bool has_premul_op_ = false;
  at::Tensor factor_;
};

}  // namespace torch::comms::nccl
