#pragma once

#include <functional>
#include <memory>

#include "vendor/blocking_adapter/blocking_communicator.hpp"

namespace torch::comms::nccl::host {

// Returns the bytes of an element.
size_t size_of(abi::DataType dtype);

// Emulates a reduction that the library may lack by its SUM. PREMUL_SUM multiplies the input first;
// AVG divides the output afterwards (integers round toward zero).
class EmulatedReduction {
 public:
  // Takes a copy of the current factor of `op`.
  EmulatedReduction(const BlockingCommunicator& member, abi::DataType dtype, abi::RedOp op);

  // Runs the reduction. `call(input, op)` calls the library on `inputs` elements and writes
  // `output`. `output` has `outputs` elements; 0 if this rank gets no result. `input` is not
  // changed, unless it is the output.
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
