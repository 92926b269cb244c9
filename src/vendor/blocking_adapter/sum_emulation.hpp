#pragma once

#include <functional>
#include <memory>

#include "vendor/blocking_adapter/blocking_communicator.hpp"

namespace torch::comms::nccl::host {

size_t size_of(abi::DataType dtype);

// A reduction that the library may lack, by way of its sum: what goes in is multiplied before
// (PREMUL_SUM), what comes out divided after (AVG; integers toward zero).
class EmulatedReduction {
 public:
  // The factor is as it is now.
  EmulatedReduction(const BlockingCommunicator& member, abi::DataType dtype, abi::RedOp op);

  // `call(input, op)` is the library's: of `inputs` elements from what it gets, into `output`,
  // which has `outputs` elements; 0 where this rank gets none. `input` is left as it is, unless it
  // is the output.
  using LibraryCall = std::function<abi::Result(const void* input, abi::RedOp op)>;
  abi::Result run(const void* input, size_t inputs, void* output, size_t outputs,
                  const LibraryCall& call) const;

 private:
  void average(void* output, size_t count) const;

  abi::DataType dtype_;
  abi::RedOp op_;
  int ranks_;
  std::shared_ptr<const BlockingCommunicator::Element> factor_;
};

}  // namespace torch::comms::nccl::host
