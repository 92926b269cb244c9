#pragma once

#include <type_traits>
#include <utility>

#include "backends/nccl/api/nccl_api_backend.hpp"
#include "backends/nccl/api/nccl_options.hpp"
#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "backends/nccl/streams/nccl_work.hpp"
#include "backends/nccl/streams/tensor_args.hpp"
#include "core/work/interruptible_call.hpp"

// The templates of NcclApiBackend that launch an operation on a LaunchQueue. The files that
// implement NcclApiBackend, a derived backend or a window include this header.
namespace torch::comms {

namespace nccl {

// Collects the results of the library calls in a group: the first result that is neither success
// nor "in progress".
class FirstFailedResult {
 public:
  explicit FirstFailedResult(abi::Result in_progress) : in_progress_(in_progress) {}
  FirstFailedResult& operator<<(abi::Result result) {
    if (result_ == abi::kSuccess && result != in_progress_) result_ = result;
    return *this;
  }
  operator abi::Result() const noexcept { return result_; }  // NOLINT(google-explicit-constructor)

 private:
  const abi::Result in_progress_;
  abi::Result result_ = abi::kSuccess;
};

// What the body of a launch uses to call the library: its functions, the communicator, and the
// operation's stream.
// Lifetime: only while the body runs.
struct NcclLaunch {
  const VendorLibrary& library;
  abi::Comm comm;
  abi::Stream stream;
  FirstFailedResult results() const { return FirstFailedResult(library.vendor().in_progress); }

  abi::Result send(const TensorBytes& bytes, int peer) const {
    return library.Send(bytes.data, bytes.size, abi::DataType::kUint8, peer, comm, stream);
  }
  abi::Result receive(const TensorBytes& bytes, int peer) const {
    return library.Recv(bytes.data, bytes.size, abi::DataType::kUint8, peer, comm, stream);
  }
};

}  // namespace nccl

template <class Body>
WorkPtr NcclApiBackend::launch(nccl::LaunchQueue& queue, const nccl::NcclCall& call,
                               const OperationOptions& options, nccl::KeptStorages kept,
                               const Body& body) {
  try {
    const nccl::LaunchQueue::LaunchScope::LaunchStreamChoice where{
        !call.async_op ||
            nccl::parse_use_current_stream(options.hints, nccl_options_->use_current_stream),
        nccl::parse_high_priority(options.hints, accepts_legacy_hints())};
    before_launch(options);
    nccl::LaunchQueue::LaunchScope scope(queue, call, where);
    const auto calls = [&](const nccl::VendorLibrary& library, nccl::abi::Comm comm) {
      return nccl::abi::Result(body(nccl::NcclLaunch{library, comm, scope.stream()}));
    };
    const auto wait = [&call] { return nccl::launch_wait(call); };
    // A body that returns abi::Result makes a single call, for which a group would only cost time.
    if constexpr (std::is_same_v<std::invoke_result_t<const Body&, const nccl::NcclLaunch&>,
                                 nccl::abi::Result>)
      queue.communicator().call(calls, wait);
    else
      queue.communicator().group(calls, wait);
    auto work = scope.finish_launch(std::move(kept));
    if (!call.async_op) work->wait_without_hooks(scope.current());
    return work;
  } catch (const Interrupted& e) {
    abort_on_interrupt(e, call, queue);
  } catch (const CommError& e) {
    throw_failure(e, call, queue);
  }
}

template <class Body>
WorkPtr NcclApiBackend::run(const nccl::NcclCall& call, const OperationOptions& options,
                            const OperandTensors& tensors, const Body& body) {
  return launch(*launch_queue_, call, options, retain_storages(call, tensors), body);
}

template <class Body>
WorkPtr NcclApiBackend::reduce(const nccl::NcclCall& call, const OperationOptions& options,
                               const ReduceOp& op, const at::Tensor& output,
                               const at::Tensor& input, const OperandTensors& tensors,
                               const Body& body) {
  // NCCL 2.28 scales for a communicator of one rank (PREMUL_SUM, AVG) such that, at many counts,
  // the last elements of the output stay unwritten. So a single rank does not use the library for
  // them.
  const bool is_alone = size_ == 1;
  if (is_alone && op.factor() != nullptr)
    return reduce_single_rank(call, options, op, output, input);
  try {
    const auto dtype = output.scalar_type();
    nccl::NcclReduction reduction(launch_queue_->communicator(), op, dtype);
    if (is_alone && op.type() == RedOpType::AVG)
      return reduce_single_rank(call, options, op, output, input);
    if (const auto* factor = op.factor())
      reduction.scale_by(*factor, dtype, device_, nccl::launch_wait(call));
    auto kept = retain_storages(call, tensors);
    reduction.retain_factor(kept);
    return launch(
        *launch_queue_, call, options, std::move(kept),
        [&](const nccl::NcclLaunch& launch) { return body(launch, std::as_const(reduction)); });
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    throw_failure(e, call, *launch_queue_);
  }
}

}  // namespace torch::comms
