#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

#include "nccl/communicator.hpp"

// Tensors and reductions in the library's terms. Throws CommError without context.
namespace torch::comms::nccl {

// The memory of a contiguous tensor, to be moved: any dtype, as bytes where the library lacks it.
struct Elements {
  explicit Elements(const at::Tensor& tensor);
  Elements part(int64_t first, int64_t count_of_tensor_elements) const;

  void* data;
  size_t count;
  abi::DataType dtype;
  size_t each;  // of the library's elements in one of the tensor's
};

// Tells the dtypes that the library reduces, and as which it does.
bool is_reducible(at::ScalarType dtype);
abi::DataType reducible_dtype(at::ScalarType dtype);

// A reduction of one call. PREMUL_SUM is made by the communicator, and given back with this object.
class Reduction {
 public:
  // Throws CommError(kUnsupported): a dtype or reduction that the library lacks;
  // kInvalidArgument: a factor that cannot be.
  Reduction(Communicator& communicator, const ReduceOp& op, const at::Tensor& like,
            Clock::time_point deadline, const Context& context);
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  abi::DataType dtype() const noexcept { return dtype_; }
  abi::RedOp op() const noexcept { return op_; }
  // What must live until the operation is done: a factor in device memory.
  const at::Tensor& keep() const noexcept { return factor_; }

 private:
  Communicator& communicator_;
  abi::DataType dtype_;
  abi::RedOp op_ = abi::RedOp::kSum;
  bool made_ = false;
  at::Tensor factor_;
  Clock::time_point deadline_;
};

}  // namespace torch::comms::nccl
