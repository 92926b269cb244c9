#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "vendor/communicator.hpp"

namespace torch::comms::bindings {

// Calls a vendor library as directly as a program can, so that the overhead of torchcomms can be
// measured. Nothing is checked, kept alive, recorded or monitored.
//
// Addresses point to memory on the device that was current when the communicator was created.
// Streams are handles of the GPU runtime. Calls enqueue and return. The caller keeps the memory
// alive until the operations are done.
//
// Throws: CommError(kVendor) with the library's own text.
// Threads: one at a time.
class RawCommunicator {
 public:
  enum class RawCollective { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll };

  struct RawCallArguments {
    uintptr_t input, output;
    size_t count;  // in units of the library: elements of the smaller side; per peer in all-to-all
    nccl::abi::DataType dtype;
    uintptr_t stream;
    int root = 0;  // of a broadcast
  };

  // Collective over the `size` ranks with the same id. Blocks: up to a minute.
  RawCommunicator(const std::shared_ptr<const nccl::VendorLibrary>& library, int size, int rank,
                  const std::string& id);

  // Enqueues one collective. Reductions are sums.
  void enqueue(RawCollective collective, const RawCallArguments& with) const;
  // Enqueues the same collective `times` times in a row. Returns: microseconds of the calling
  // thread per call.
  double enqueue_many(RawCollective collective, const RawCallArguments& with, int times) const;

  // Closes the communicator. All operations must be done.
  void close();

 private:
  nccl::abi::Result call(RawCollective collective, const RawCallArguments& with) const;
  nccl::abi::Result all_to_all(const RawCallArguments& with) const;

  const std::shared_ptr<nccl::Communicator> communicator_;
  const nccl::VendorLibrary& library_;
  const int size_;
};

// Returns: the library's dtype for the name of torch's dtype. Throws: CommError(kInvalidArgument)
// for a dtype that the libraries lack.
nccl::abi::DataType dtype_of(const std::string& name);

}  // namespace torch::comms::bindings
