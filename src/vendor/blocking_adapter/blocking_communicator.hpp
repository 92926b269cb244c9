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

// The result of the library when a call cannot be: of oneCCL's numbers, which are NCCL's up to 5.
inline constexpr abi::Result kInternalError = 3;

// A rank's communicator of a library whose calls block: what is under way on streams, and what went
// wrong there. Any thread, but for one at a time in communicator_name().
class BlockingCommunicator : public std::enable_shared_from_this<BlockingCommunicator> {
 public:
  // `library` lives forever.
  BlockingCommunicator(const VendorLibrary& library, abi::Comm communicator, int rank, int size);

  const VendorLibrary& library() const noexcept { return library_; }
  abi::Comm communicator() const noexcept { return communicator_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  using Body = std::function<abi::Result(BlockingCommunicator&)>;
  // Runs `body` on `stream`, unless something went wrong before. What is captured runs in replays.
  void launch(abi::Stream stream, Body body);
  // Returns when all that was launched has run.
  void drain();

  // The first result that was no success. `text`: of ours, else the library's.
  abi::Result set_error(abi::Result result, const std::string& text = {});
  abi::Result state() const;
  // Empty while all is well.
  const char* last_error() const;

  // What PREMUL_SUM multiplies by: bytes of an element.
  using Element = std::vector<char>;
  abi::RedOp add_premul_factor(Element factor);
  void remove_premul_factor(abi::RedOp op);
  // Null for an operation of the library's.
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
  int next_op_ = 100;  // above all of the library's
  std::map<abi::RedOp, std::shared_ptr<const Element>> factors_;
};

}  // namespace torch::comms::nccl::host
