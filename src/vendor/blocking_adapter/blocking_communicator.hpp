#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "vendor/vendor_library.hpp"

namespace torch::comms::nccl::host {

// The library's result for a call that failed with an exception. oneCCL's numbers are those of NCCL
// up to 5.
inline constexpr abi::Result kInternalError = 3;

// A communicator of a library whose calls block: counts its operations on streams and keeps their
// first error.
//
// Threads: any.
class BlockingCommunicator : public std::enable_shared_from_this<BlockingCommunicator> {
 public:
  // Lifetime: `library` must never be destroyed.
  BlockingCommunicator(const VendorLibrary& library, abi::Comm communicator, int rank, int size);

  const VendorLibrary& library() const noexcept { return library_; }
  abi::Comm communicator() const noexcept { return communicator_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  using Body = std::function<abi::Result(BlockingCommunicator&)>;
  // Runs `body` on `stream`, unless an earlier operation failed. During capture, `body` becomes
  // part of the graph.
  void launch(abi::Stream stream, Body body);
  // Blocks: until all launched bodies have run.
  void drain();

  // Stores the first result that is not success. `text`: of torchcomms; if empty, the library's
  // text is taken. Returns: `result`.
  abi::Result set_error(abi::Result result, const std::string& text = {});
  abi::Result state() const;
  // Returns the text of the first error; empty if there was none.
  const char* last_error() const;

  // The bytes of one element: the factor of a PREMUL_SUM.
  using Element = std::vector<char>;
  abi::RedOp add_premul_factor(Element factor);
  void remove_premul_factor(abi::RedOp op);
  // Returns the factor of a PREMUL_SUM; null for an operation of the library.
  std::shared_ptr<const Element> factor_of(abi::RedOp op) const;

 private:
  void run(const Body& body);

  const VendorLibrary& library_;
  const abi::Comm communicator_;
  const int rank_, size_;
  mutable std::mutex mutex_;  // guards all below; partner of idle_
  std::condition_variable idle_;
  int in_flight_ = 0;
  abi::Result state_ = abi::kSuccess;
  std::string text_;
  int next_op_ = 100;  // above all operations of the library
  std::map<abi::RedOp, std::shared_ptr<const Element>> factors_;
};

}  // namespace torch::comms::nccl::host
