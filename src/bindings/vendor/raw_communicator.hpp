#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "vendor/communicator.hpp"

namespace torch::comms::bindings {

// A vendor's library called as directly as a program can, so that what the rest of torchcomms adds
// to a call can be measured. Nothing is checked, kept alive, recorded or watched.
//
// Addresses are of the memory that the library works on, on the device that was current when the
// communicator was made; streams are the runtime's handles. Calls enqueue and return. The caller
// keeps the memory until they are done.
//
// Threads: one at a time. Failure: CommError(kVendor) with the library's own text.
class RawCommunicator {
 public:
  enum class RawCollective { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll };

  struct RawCallArguments {
    uintptr_t input, output;
    size_t
        count;  // as the library counts: elements of the smaller side; for each peer in all-to-all
    nccl::abi::DataType dtype;
    uintptr_t stream;
    int root = 0;  // of a broadcast
  };

  // Collective over the `size` ranks with the same id. Blocks up to a minute.
  RawCommunicator(const std::shared_ptr<const nccl::VendorLibrary>& library, int size, int rank,
                  const std::string& id);

  // Reductions are sums.
  void enqueue(RawCollective collective, const RawCallArguments& with) const;
  // The same call `times` times in a row. Returns microseconds of the calling thread, for one call.
  double enqueue_many(RawCollective collective, const RawCallArguments& with, int times) const;

  // Leaves in good order; all operations must be done.
  void close();

 private:
  nccl::abi::Result call(RawCollective collective, const RawCallArguments& with) const;
  nccl::abi::Result all_to_all(const RawCallArguments& with) const;

  const std::shared_ptr<nccl::Communicator> communicator_;
  const nccl::VendorLibrary& library_;
  const int size_;
};

// By the name of torch's type. Throws CommError(kInvalidArgument) for what the libraries lack.
nccl::abi::DataType dtype_of(const std::string& name);

}  // namespace torch::comms::bindings
