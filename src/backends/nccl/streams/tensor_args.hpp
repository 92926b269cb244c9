#pragma once

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

#include "backends/nccl/graphs/kept_storages.hpp"
#include "vendor/communicator.hpp"

// Tensors and reductions in the library's terms. Throws CommError without context.
namespace torch::comms::nccl {

// The memory of a contiguous tensor, to be moved as it is: as bytes, so that every dtype moves.
struct TensorBytes {
  explicit TensorBytes(const at::Tensor& tensor);
  char* data;
  size_t size;
};
// Whether the two share memory.
bool overlap(const at::Tensor& a, const at::Tensor& b);
// Whether they share no memory, or that of an operation in place: the smaller one is part number
// `rank` of the larger.
bool is_in_place_or_disjoint(const at::Tensor& input, const at::Tensor& output, int rank);
// `input`, or a copy where it shares memory with `output` in another way.
at::Tensor copy_input_if_overlapping(const at::Tensor& input, const at::Tensor& output, int rank);
// `slots`, of which those are copies that share memory with `output`, but for number `rank` where
// it is just that.
std::vector<at::Tensor> copy_if_overlapping(const std::vector<at::Tensor>& slots,
                                            const at::Tensor& output, int rank);

// Whether every library has reductions of it, on every device.
bool is_reducible(at::ScalarType dtype) noexcept;

// The factor of PREMUL_SUM, if it can be one: an element of the dtype, on the CPU or on `device`.
// Else throws kInvalidArgument.
at::Tensor factor_element(const at::Tensor& factor, at::ScalarType dtype, const at::Device& device);

// A reduction of one call. PREMUL_SUM is made by the communicator, and given back with this object.
class NcclReduction {
 public:
  // kUnsupported: a dtype or reduction that the library lacks.
  NcclReduction(Communicator& communicator, const ReduceOp& op, at::ScalarType dtype);
  ~NcclReduction();
  NcclReduction(const NcclReduction&) = delete;
  NcclReduction& operator=(const NcclReduction&) = delete;

  // Makes the operation PREMUL_SUM. kInvalidArgument: a factor that cannot be.
  void scale_by(const PreMulSumFactorT& factor, at::ScalarType dtype, const at::Device& device,
                const WaitOptions& wait);

  abi::DataType dtype() const noexcept { return dtype_; }
  abi::RedOp op() const noexcept { return op_; }
  // A factor in device memory, which is read when the operation runs.
  void retain_factor(KeptStorages& kept) const;

 private:
  Communicator& communicator_;
  abi::DataType dtype_;
  abi::RedOp op_ = abi::RedOp::kSum;
  bool has_premul_op_ = false;
  at::Tensor factor_;
};

}  // namespace torch::comms::nccl
