#pragma once

#include <type_traits>
#include <utility>

#include "backends/nccl/call.hpp"
#include "backends/nccl/elements.hpp"
#include "backends/nccl/hints.hpp"
#include "backends/nccl/lane.hpp"
#include "backends/nccl/vendor_backend.hpp"
#include "backends/nccl/work.hpp"
#include "core/interruptible_call.hpp"

// The one way an operation goes, for the files that implement TorchCommVendor.
namespace torch::comms {

namespace nccl {

// What a body of a group returns: the first result that is no success.
class Results {
 public:
  explicit Results(abi::Result in_progress) : in_progress_(in_progress) {}
  Results& operator<<(abi::Result result) {
    if (result_ == abi::kSuccess && result != in_progress_) result_ = result;
    return *this;
  }
  operator abi::Result() const noexcept { return result_; }  // NOLINT(google-explicit-constructor)

 private:
  const abi::Result in_progress_;
  abi::Result result_ = abi::kSuccess;
};

// What a body gets to call the library with.
struct Launch {
  const VendorLibrary& library;
  abi::Comm comm;
  abi::Stream stream;
  Results results() const { return Results(library.vendor().in_progress); }

  abi::Result send(const Bytes& bytes, int peer) const {
    return library.Send(bytes.data, bytes.size, abi::DataType::kUint8, peer, comm, stream);
  }
  abi::Result receive(const Bytes& bytes, int peer) const {
    return library.Recv(bytes.data, bytes.size, abi::DataType::kUint8, peer, comm, stream);
  }
};

}  // namespace nccl

template <class Body>
WorkPtr TorchCommVendor::launch(nccl::Lane& lane, const nccl::Call& call,
                                const OperationOptions& options, nccl::Kept kept,
                                const Body& body) {
  try {
    const nccl::Lane::Slot::Where where{
        !call.async_op || nccl::wants_current_stream(options.hints, wishes_->on_current_stream),
        nccl::wants_high_priority(options.hints, knows_older_hints())};
    about_to_launch(options);
    nccl::Lane::Slot slot(lane, call, where);
    const auto calls = [&](const nccl::VendorLibrary& library, nccl::abi::Comm comm) {
      return nccl::abi::Result(body(nccl::Launch{library, comm, slot.stream()}));
    };
    const auto wait = [&call] { return nccl::launch_wait(call); };
    // A body of one call returns its result; a group around it would only cost time.
    if constexpr (std::is_same_v<std::invoke_result_t<const Body&, const nccl::Launch&>,
                                 nccl::abi::Result>)
      lane.communicator().call(calls, wait);
    else
      lane.communicator().group(calls, wait);
    auto work = slot.end(std::move(kept));
    if (!call.async_op) work->settle(slot.current());
    return work;
  } catch (const Interrupted& e) {
    interrupted(e, call, lane);
  } catch (const CommError& e) {
    failed(e, call, lane);
  }
}

template <class Body>
WorkPtr TorchCommVendor::run(const nccl::Call& call, const OperationOptions& options,
                             const Operands& tensors, const Body& body) {
  return launch(*lane_, call, options, keep(call, tensors), body);
}

template <class Body>
WorkPtr TorchCommVendor::reduce(const nccl::Call& call, const OperationOptions& options,
                                const ReduceOp& op, const at::Tensor& output,
                                const at::Tensor& input, const Operands& tensors,
                                const Body& body) {
  // Where NCCL 2.28 multiplies for one rank, which averages do as well, it leaves the last elements
  // of the output as they are, in many counts.
  const bool is_alone = size_ == 1;
  if (is_alone && op.factor() != nullptr) return reduce_alone(call, options, op, output, input);
  try {
    const auto dtype = output.scalar_type();
    nccl::Reduction reduction(lane_->communicator(), op, dtype);
    if (is_alone && op.type() == RedOpType::AVG)
      return reduce_alone(call, options, op, output, input);
    if (const auto* factor = op.factor())
      reduction.scale_by(*factor, dtype, device_, nccl::launch_wait(call));
    auto kept = keep(call, tensors);
    reduction.keep_in(kept);
    return launch(*lane_, call, options, std::move(kept), [&](const nccl::Launch& launched) {
      return body(launched, std::as_const(reduction));
    });
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    failed(e, call, *lane_);
  }
}

}  // namespace torch::comms
