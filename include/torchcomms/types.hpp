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

// Every hooked entry point of a communicator, by its public name. The values are part of the
// contract.
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

// "all_reduce", ...; the words used in messages, records and hooks.
TC_API std::string_view opToString(OpName name) noexcept;

enum class WorkStatus : uint8_t {
  NOT_STARTED = 0,
  INPROGRESS = 1,
  COMPLETED = 2,
  TIMEDOUT = 3,
  ERROR = 4,
};
TC_API std::string_view toString(WorkStatus status) noexcept;

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

using Hints = std::unordered_map<std::string, std::string>;
using InitHandle = std::string;
using PreMulSumFactorT = std::variant<at::Tensor, double>;

inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::seconds(600);
inline constexpr std::chrono::milliseconds kNoTimeout{0};  // "not set": the next default applies

// How elements are combined. Immutable; compares by type and by identity of the factor.
class TC_API ReduceOp {
 public:
  using RedOpType = torch::comms::RedOpType;

  // Any type but PREMUL_SUM, whose factor would be missing: throws CommError(kInvalidArgument).
  // Implicit on purpose: `all_reduce(t, RedOpType::SUM, ...)`.
  ReduceOp(RedOpType type);  // NOLINT(google-explicit-constructor)

  // Every rank's input is multiplied by its own `factor` before the sum.
  static ReduceOp make_nccl_premul_sum(PreMulSumFactorT factor);

  ReduceOp(const ReduceOp&) = default;
  ReduceOp& operator=(const ReduceOp&) = delete;

  RedOpType type() const noexcept { return type_; }
  operator RedOpType() const noexcept { return type_; }  // NOLINT(google-explicit-constructor)

  // The factor of PREMUL_SUM; nullptr for every other type.
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

// The peer of a receive that takes a message from anybody.
inline constexpr int kAnySource = -1;

enum class P2POpType : uint8_t { SEND = 0, RECV = 1 };

// Of messages. The one tag above is this library's own, for what it sends beside the program.
inline constexpr int kLargestTag = std::numeric_limits<int>::max() - 1;
inline constexpr int kOwnTag = kLargestTag + 1;

// One entry of a batch. `peer` is checked against the communicator when the batch is issued.
struct P2POp {
  using OpType = P2POpType;
  P2POpType type;
  at::Tensor tensor;
  int peer;
  int tag = 0;  // as SendOptions have it
};

}  // namespace torch::comms
