#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include <ATen/core/Tensor.h>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// The operations of a communicator that run hooks, by public name. The numeric values are part of
// the contract and do not change.
enum class OpName : uint8_t {
  send = 0,
  recv,
  broadcast,
  all_reduce,
  reduce,
  all_gather,
  all_gather_v,
  all_gather_single,
  reduce_scatter,
  reduce_scatter_v,
  reduce_scatter_single,
  all_to_all_single,
  all_to_all_v_single,
  all_to_all,
  barrier,
  scatter,
  gather,
  gather_single,
  split,
  new_window,
  batch_op_issue,
  finalize,
};
inline constexpr int kOpNameCount = 22;

// Returns: the public name of the operation, such as "all_reduce", for error texts, records and
// hooks.
TC_API std::string_view opToString(OpName name) noexcept;

// The state of a TorchWork. COMPLETED, TIMEDOUT and ERROR are terminal.
enum class WorkStatus : uint8_t {
  NOT_STARTED = 0,
  INPROGRESS = 1,
  COMPLETED = 2,
  TIMEDOUT = 3,
  ERROR = 4,
};
TC_API std::string_view toString(WorkStatus status) noexcept;

// How a reduction combines elements. AVG divides the sum by the number of ranks.
enum class RedOpType : uint8_t {
  SUM = 0,
  PRODUCT = 1,
  MIN = 2,
  MAX = 3,
  BAND = 4,
  BOR = 5,
  BXOR = 6,
  PREMUL_SUM = 7,
  AVG = 8,
};
TC_API std::string_view toString(RedOpType type) noexcept;

// Named settings of a communicator or of one call; docs/reference/hints.md lists them.
using Hints = std::unordered_map<std::string, std::string>;
// A text that names one member of a reconfigurable communicator: TorchComm::getInitHandle().
using InitHandle = std::string;
// The factor of PREMUL_SUM: a number, or a tensor.
using PreMulSumFactorT = std::variant<at::Tensor, double>;

// The timeout of a communicator if neither the program nor TORCHCOMM_TIMEOUT_SECONDS sets one.
inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::seconds(600);
inline constexpr std::chrono::milliseconds kNoTimeout{0};  // "not set": the next default applies

// A reduction: its type and, for PREMUL_SUM, its factor. It is immutable. Two reductions are equal
// if their types are equal and their factors are the same number or the same tensor object.
class TC_API ReduceOp {
 public:
  using RedOpType = torch::comms::RedOpType;

  // Makes a reduction of any type but PREMUL_SUM, which needs a factor. The constructor is implicit
  // on purpose: `all_reduce(t, RedOpType::SUM, ...)`.
  // Throws: CommError(kInvalidArgument) for PREMUL_SUM.
  ReduceOp(RedOpType type);  // NOLINT(google-explicit-constructor)

  // Makes a PREMUL_SUM: each rank multiplies its input by its own `factor` before the sum. The
  // operation checks later whether the factor fits its data.
  // Throws: CommError(kInvalidArgument) for an undefined tensor.
  static ReduceOp make_nccl_premul_sum(PreMulSumFactorT factor);

  ReduceOp(const ReduceOp&) = default;
  ReduceOp& operator=(const ReduceOp&) = delete;

  RedOpType type() const noexcept { return type_; }
  operator RedOpType() const noexcept { return type_; }  // NOLINT(google-explicit-constructor)

  // Returns: the factor of PREMUL_SUM; nullptr for every other type.
  const PreMulSumFactorT* factor() const noexcept {
    return type_ == RedOpType::PREMUL_SUM ? &factor_ : nullptr;
  }

  bool operator==(const ReduceOp& other) const noexcept;
  size_t hash() const noexcept;

  static const ReduceOp SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, AVG;

 private:
  ReduceOp(RedOpType type, PreMulSumFactorT factor) : type_(type), factor_(std::move(factor)) {}
  RedOpType type_;
  PreMulSumFactorT factor_ = 1.0;
};

// The peer of a receive that accepts a message from any rank.
inline constexpr int kAnySource = -1;

// The direction of one message of a batch.
enum class P2POpType : uint8_t { SEND = 0, RECV = 1 };

// The largest tag that a program may use. The library uses the tag above it, kOwnTag, for its own
// messages.
inline constexpr int kLargestTag = std::numeric_limits<int>::max() - 1;
inline constexpr int kOwnTag = kLargestTag + 1;

// One message of a batch. The communicator checks `peer` and `tensor` when the batch is issued.
struct P2POp {
  using OpType = P2POpType;
  P2POpType type;
  at::Tensor tensor;
  int peer;
  int tag = 0;  // see SendOptions::tag
};

}  // namespace torch::comms
