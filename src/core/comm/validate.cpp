#include "core/comm/validate.hpp"

#include <limits>
#include <vector>

#include <c10/core/ScalarType.h>
#include <torchcomms/base/error.hpp>

#include "core/backend/backend_suggestions.hpp"
#include "core/comm/comm_name.hpp"
#include "core/comm/error_context.hpp"
#include "core/comm/operand_checks.hpp"
#include "core/options/dtype_name.hpp"

namespace torch::comms {
namespace {

// The name of an argument in an error text: "tensor", or "tensor_list[3]". The text is only built
// when it is needed.
struct ArgumentName {
  ArgumentName(const char* what, size_t index = kWhole)  // NOLINT(google-explicit-constructor)
      : what(what), index(index) {}
  std::string to_text() const {
    return index == kWhole ? what : std::string(what) + "[" + std::to_string(index) + "]";
  }
  static constexpr size_t kWhole = static_cast<size_t>(-1);
  const char* what;
  size_t index;
};

// Checks the arguments of one call. Each error has the operation and the communicator.
class ArgumentChecker {
 public:
  template <class Op>
  ArgumentChecker(const Op& op, const CommFacts& comm)
      : op_(Op::kName), name_(opToString(op_)), comm_(comm) {
    if (!comm.capabilities.has(op_))
      lacks("backend '" + comm.backend + "' does not have this operation",
            [this](const Capabilities& other) { return other.has(op_); });
    if (is_strict()) timeout(op.options.timeout);
  }
  // Checks a method of a window.
  ArgumentChecker(std::string_view name, const CommFacts& comm)
      : op_(OpName::new_window), name_(name), comm_(comm) {}

  // Returns: false if the backend wants no checks of sizes and layouts (dry runs).
  bool is_strict() const { return comm_.capabilities.strict_arguments; }
  int size() const { return comm_.size; }
  int rank() const { return comm_.rank; }

  [[noreturn]] void refuse(Errc code, const std::string& why) const {
    throw CommError(code, why, {.op = std::string(name_), .comm = comm_.name, .rank = comm_.rank});
  }
  [[noreturn]] void refuse(const std::string& why) const { refuse(Errc::kInvalidArgument, why); }
  // `can`: tells whether another backend has the missing ability.
  template <class Can>
  [[noreturn]] void lacks(const std::string& why, const Can& can) const {
    refuse(Errc::kUnsupported, why + backends_supporting(can));
  }

  void timeout(std::chrono::milliseconds timeout) const {
    if (timeout < kNoTimeout || timeout > kMaxTimeout)
      refuse("timeout is " + std::to_string(timeout.count()) +
             " ms, allowed is up to 1e9 seconds, or 0 for the communicator's timeout");
  }

  void rank_in_range(ArgumentName what, int value) const {
    if (value < 0 || value >= comm_.size)
      refuse(what.to_text() + " is " + std::to_string(value) + ", allowed is 0 to " +
             std::to_string(comm_.size - 1) + " (of " + std::to_string(comm_.size) + " ranks)");
  }

  void peer(ArgumentName what, int value) const {
    rank_in_range(what, value);
    if (value == comm_.rank && !comm_.capabilities.self_messages)
      refuse(what.to_text() + " is " + std::to_string(value) + ", this rank itself: backend '" +
             comm_.backend + "' does not support messages to the own rank");
  }

  void any_source(ArgumentName what, int value, bool async_op) const {
    if (!comm_.capabilities.any_source)
      lacks("backend '" + comm_.backend + "' has no receive from any source",
            [&](const Capabilities& other) { return other.any_source; });
    if (value != kAnySource)
      refuse(what.to_text() + " is " + std::to_string(value) + " with any_source, allowed is " +
             std::to_string(kAnySource));
    if (!async_op)
      refuse("any_source requires async_op=True: only the work reports the rank of the sender");
  }

  void tensor(ArgumentName what, const at::Tensor& tensor) const {
    if (!tensor.defined()) refuse(what.to_text() + " is an undefined tensor");
    if (!comm_.capabilities.has(tensor.device().type()))
      refuse(what.to_text() + " is on device " + tensor.device().str() + ", backend '" +
             comm_.backend + "' takes " + device_list());
    if (!comm_.capabilities.has(tensor.scalar_type()))
      lacks(what.to_text() + " has dtype " + dtype_name(tensor.scalar_type()) +
                ", which backend '" + comm_.backend + "' does not have",
            [&](const Capabilities& other) {
              return other.has(op_) && other.has(tensor.scalar_type());
            });
    if (!is_strict()) return;
    if (tensor.layout() != at::kStrided)
      refuse(what.to_text() + " has a sparse layout; only dense (strided) tensors are allowed");
    if (!tensor.is_contiguous()) refuse(format_not_contiguous(what.to_text()));
    if (const auto why = plain_memory_error(tensor)) refuse(what.to_text() + " " + *why);
  }

  // Requires that two tensors of a call have the same dtype.
  void pair(ArgumentName what_a, const at::Tensor& a, ArgumentName what_b,
            const at::Tensor& b) const {
    tensor(what_a, a);
    tensor(what_b, b);
    same_dtype(what_a, a, what_b, b);
  }

  void same_dtype(ArgumentName what_a, const at::Tensor& a, ArgumentName what_b,
                  const at::Tensor& b) const {
    if (is_strict() && a.scalar_type() != b.scalar_type())
      refuse(what_a.to_text() + " has dtype " + dtype_name(a.scalar_type()) + ", " +
             what_b.to_text() + " has " + dtype_name(b.scalar_type()) + "; they must be the same");
  }

  // Requires a list with one tensor per rank, with the dtype of `other`.
  void list(const char* what, const Tensors& tensors, const char* what_other,
            const at::Tensor& other) const {
    if (is_strict() && tensors.size() != static_cast<size_t>(comm_.size))
      refuse(ArgumentName(what).to_text() + " has " + std::to_string(tensors.size()) +
             " tensors, expected one per rank: " + std::to_string(comm_.size));
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensor({what, i}, tensors[i]);
      same_dtype({what, i}, tensors[i], what_other, other);
    }
  }

  // `relation` describes the expected count, such as "as" or "ranks times".
  void elements(ArgumentName what, int64_t seen, const char* relation, ArgumentName other,
                int64_t expected) const {
    if (is_strict() && seen != expected)
      refuse(what.to_text() + " has " + std::to_string(seen) + " elements, expected " +
             std::to_string(expected) + " (" + relation + " " + other.to_text() + ")");
  }

  // Requires that each tensor of the list has as many elements as `other`.
  void equal_slots(const char* what, const Tensors& tensors, const char* what_other,
                   const at::Tensor& other) const {
    list(what, tensors, what_other, other);
    for (size_t i = 0; i < tensors.size(); ++i)
      elements({what, i}, tensors[i].numel(), "as", what_other, other.numel());
  }

  // Requires that this rank's own slot has as many elements as `other`; the other slots may differ.
  void own_slot(const char* what, const Tensors& tensors, const char* what_other,
                const at::Tensor& other) const {
    list(what, tensors, what_other, other);
    if (!is_strict()) return;
    const auto own = static_cast<size_t>(comm_.rank);
    elements({what, own}, tensors[own].numel(), "this rank's slot, as", what_other, other.numel());
  }

  void reduction(const ReduceOp& op, at::ScalarType dtype) const {
    const auto named = [&] { return "reduction " + std::string(toString(op.type())); };
    if (!comm_.capabilities.has(op.type()))
      lacks("backend '" + comm_.backend + "' has no " + named(),
            [&](const Capabilities& other) { return other.has(op_) && other.has(op.type()); });
    const bool bitwise =
        op.type() == RedOpType::BAND || op.type() == RedOpType::BOR || op.type() == RedOpType::BXOR;
    if (bitwise && !c10::isIntegralType(dtype, /*includeBool=*/true))
      refuse(named() + " is not defined for dtype " + dtype_name(dtype) +
             "; bitwise reductions take integers and bool");
    const bool ordered = op.type() == RedOpType::MIN || op.type() == RedOpType::MAX;
    if (ordered && c10::isComplexType(dtype))
      refuse(named() + " is not defined for dtype " + dtype_name(dtype) + ", which has no order");
    if (const auto* factor = op.factor()) premul_factor(*factor, dtype);
  }

  void splits(const char* what, const Splits& splits, const char* what_tensor,
              const at::Tensor& tensor) const {
    if (splits.size() != static_cast<size_t>(comm_.size))
      refuse(std::string(what) + " has " + std::to_string(splits.size()) +
             " entries, expected one per rank: " + std::to_string(comm_.size));
    const auto rows = static_cast<uint64_t>(tensor.dim() > 0 ? tensor.size(0) : tensor.numel());
    uint64_t sum = 0;
    for (const uint64_t split : splits) {
      if (split > rows || sum + split > rows)
        refuse(std::string(what) + " adds up to more than the " + std::to_string(rows) +
               " rows of " + what_tensor + " (an entry is " + std::to_string(split) + ")");
      sum += split;
    }
  }

 private:
  void premul_factor(const PreMulSumFactorT& factor, at::ScalarType dtype) const {
    // A multiplied boolean would leave bytes that are neither 0 nor 1.
    if (dtype == at::kBool) refuse("PREMUL_SUM is not defined for dtype bool");
    const bool integral = c10::isIntegralType(dtype, /*includeBool=*/true);
    if (std::holds_alternative<double>(factor)) {
      if (integral)
        refuse(std::string("PREMUL_SUM with a number as factor is not defined for dtype ") +
               dtype_name(dtype) + "; use floating-point data, or a tensor factor of that dtype");
      return;
    }
    const auto& tensor = std::get<at::Tensor>(factor);
    if (integral && !c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false))
      refuse(std::string("PREMUL_SUM: a factor of dtype ") + dtype_name(tensor.scalar_type()) +
             " cannot scale data of dtype " + dtype_name(dtype));
  }

  std::string device_list() const {
    std::string text;
    for (size_t i = 0; i < comm_.capabilities.devices.size(); ++i)
      if (comm_.capabilities.devices.test(i))
        text += (text.empty() ? "" : ", ") +
                c10::DeviceTypeName(static_cast<c10::DeviceType>(i), /*lower_case=*/true);
    return text;
  }

  OpName op_;
  std::string_view name_;
  const CommFacts& comm_;
};

}  // namespace

std::string format_not_contiguous(const std::string& tensor) {
  return tensor +
         " is not contiguous; pass a contiguous copy, and for an output copy the result back";
}

void validate(const Send& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.peer("dst", op.peer);
  check.tensor("tensor", op.tensor);
}

void validate(const Recv& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  if (op.options.any_source)
    check.any_source("src", op.peer, op.async_op);
  else
    check.peer("src", op.peer);
  check.tensor("tensor", op.tensor);
}

void validate(const Broadcast& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.rank_in_range("root", op.root);
  check.tensor("tensor", op.tensor);
}

void validate(const AllReduce& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.tensor("tensor", op.tensor);
  check.reduction(op.op, op.tensor.scalar_type());
}

void validate(const Reduce& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.rank_in_range("root", op.root);
  check.tensor("tensor", op.tensor);
  check.reduction(op.op, op.tensor.scalar_type());
}

void validate(const AllGather& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.tensor("tensor", op.input);
  check.equal_slots("tensor_list", op.output, "tensor", op.input);
}

void validate(const AllGatherV& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.tensor("tensor", op.input);
  check.own_slot("tensor_list", op.output, "tensor", op.input);
}

void validate(const AllGatherSingle& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.pair("output", op.output, "input", op.input);
  check.elements("output", op.output.numel(), "ranks times", "input", op.input.numel() * comm.size);
}

void validate(const ReduceScatter& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.tensor("output", op.output);
  check.equal_slots("input_list", op.input, "output", op.output);
  check.reduction(op.op, op.output.scalar_type());
}

void validate(const ReduceScatterV& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.tensor("output", op.output);
  check.own_slot("input_list", op.input, "output", op.output);
  check.reduction(op.op, op.output.scalar_type());
}

void validate(const ReduceScatterSingle& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.pair("output", op.output, "input", op.input);
  check.elements("input", op.input.numel(), "ranks times", "output", op.output.numel() * comm.size);
  check.reduction(op.op, op.output.scalar_type());
}

void validate(const AllToAllSingle& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.pair("output", op.output, "input", op.input);
  check.elements("output", op.output.numel(), "as", "input", op.input.numel());
  if (check.is_strict() && op.input.numel() % comm.size != 0)
    check.refuse("input has " + std::to_string(op.input.numel()) +
                 " elements, which is not divisible by the " + std::to_string(comm.size) +
                 " ranks");
}

void validate(const AllToAllVSingle& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.pair("output", op.output, "input", op.input);
  if (!check.is_strict()) return;
  check.splits("output_split_sizes", op.output_split_sizes, "output", op.output);
  check.splits("input_split_sizes", op.input_split_sizes, "input", op.input);
  // The rows of the two tensors may differ in size, for example in an exchange into a flat tensor.
  const auto elements = [](const at::Tensor& t, uint64_t rows) {
    return t.dim() > 0 && t.size(0) > 0 ? rows * static_cast<uint64_t>(t.numel() / t.size(0))
                                        : rows;
  };
  const auto own = static_cast<size_t>(comm.rank);
  const auto received = elements(op.output, op.output_split_sizes[own]);
  const auto sent = elements(op.input, op.input_split_sizes[own]);
  if (received != sent)
    check.refuse("output_split_sizes[" + std::to_string(own) + "] is " +
                 std::to_string(op.output_split_sizes[own]) + ", of " + std::to_string(received) +
                 " elements, input_split_sizes[" + std::to_string(own) + "] is " +
                 std::to_string(op.input_split_sizes[own]) + ", of " + std::to_string(sent) +
                 "; a rank receives what it sends to itself, so both must be the same");
}

void validate(const AllToAll& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  if (op.input.empty() || op.output.empty()) {
    if (!check.is_strict()) return;
    check.refuse("output_tensor_list has " + std::to_string(op.output.size()) +
                 " tensors and input_tensor_list " + std::to_string(op.input.size()) +
                 ", expected one per rank: " + std::to_string(comm.size));
  }
  check.tensor("input_tensor_list[0]", op.input[0]);
  check.list("output_tensor_list", op.output, "input_tensor_list[0]", op.input[0]);
  check.list("input_tensor_list", op.input, "input_tensor_list[0]", op.input[0]);
  if (!check.is_strict()) return;
  const auto own = static_cast<size_t>(comm.rank);
  check.elements({"output_tensor_list", own}, op.output[own].numel(), "this rank's slot, as",
                 {"input_tensor_list", own}, op.input[own].numel());
}

void validate(const Barrier& op, const CommFacts& comm) { const ArgumentChecker check(op, comm); }

void validate(const Scatter& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.rank_in_range("root", op.root);
  check.tensor("output_tensor", op.output);
  if (comm.rank == op.root)
    check.equal_slots("input_tensor_list", op.input, "output_tensor", op.output);
}

void validate(const Gather& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.rank_in_range("root", op.root);
  check.tensor("input_tensor", op.input);
  if (comm.rank == op.root)
    check.equal_slots("output_tensor_list", op.output, "input_tensor", op.input);
}

void validate(const GatherSingle& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  check.rank_in_range("root", op.root);
  check.tensor("input", op.input);
  if (comm.rank != op.root) return;
  check.pair("output", op.output, "input", op.input);
  check.elements("output", op.output.numel(), "ranks times", "input", op.input.numel() * comm.size);
}

void validate(const Split& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  if (op.options.enable_reconfigure)
    check.refuse(
        "enable_reconfigure is an option of new_comm() only: the members of a split cannot change");
  require_name_length(op.name, {.op = "split", .comm = comm.name, .rank = comm.rank});
  for (const int rank : op.ranks) check.rank_in_range("a rank of the list", rank);
  std::vector<bool> seen(static_cast<size_t>(comm.size), false);
  for (const int rank : op.ranks) {
    if (seen[static_cast<size_t>(rank)])
      check.refuse("rank " + std::to_string(rank) + " occurs twice in the list");
    seen[static_cast<size_t>(rank)] = true;
  }
  if (!op.ranks.empty() && check.is_strict() && !seen[static_cast<size_t>(comm.rank)])
    check.refuse("the list of " + std::to_string(op.ranks.size()) +
                 " ranks does not contain rank " + std::to_string(comm.rank) +
                 ", which calls split(); pass a list that includes the calling rank, or [] to "
                 "take no part");
}

void validate(const BatchOpIssue& op, const CommFacts& comm) {
  const ArgumentChecker check(op, comm);
  if (op.ops.empty()) check.refuse("the batch is empty; add send() or recv() first");
  for (size_t i = 0; i < op.ops.size(); ++i) {
    check.peer({"peer of ops", i}, op.ops[i].peer);
    check.tensor({"tensor of ops", i}, op.ops[i].tensor);
  }
}

void validate_window_tensor(std::string_view method, const at::Tensor& tensor,
                            const CommFacts& comm) {
  const ArgumentChecker check(method, comm);
  check.tensor("tensor", tensor);
}

void validate_window_rank(std::string_view method, const char* what, int rank,
                          const CommFacts& comm) {
  const ArgumentChecker check(method, comm);
  check.rank_in_range(what, rank);
}

void validate_window_timeout(std::string_view method, std::chrono::milliseconds timeout,
                             const CommFacts& comm) {
  const ArgumentChecker check(method, comm);
  check.timeout(timeout);
}

}  // namespace torch::comms
