#include "core/observe/operation_record.hpp"

#include <algorithm>
#include <string>

#include <c10/core/ScalarType.h>
#include <torchcomms/base/error.hpp>

#include "core/comm/each_operation.hpp"
#include "core/options/dtype_name.hpp"
#include "tracing/ring_layout.hpp"

namespace torch::comms {
namespace {

uint64_t count(const at::Tensor& tensor) noexcept {
  return tensor.defined() ? static_cast<uint64_t>(tensor.numel()) : 0;
}
uint64_t count(const Tensors& tensors) noexcept {
  uint64_t sum = 0;
  for (const auto& tensor : tensors) sum += count(tensor);
  return sum;
}
const at::Tensor* first(const at::Tensor& tensor) noexcept { return &tensor; }
const at::Tensor* first(const Tensors& tensors) noexcept {
  return tensors.empty() ? nullptr : &tensors.front();
}

template <class Data>
void describe(base::OpRecord& record, const Data& data) noexcept {
  const at::Tensor* tensor = first(data);
  if (tensor == nullptr || !tensor->defined()) return;
  record.dtype = static_cast<uint8_t>(tensor->scalar_type());
  record.bytes = std::max(record.elements_in, record.elements_out) * tensor->itemsize();
}

// Returns: false if the record has no room for another peer.
bool keep_peer(base::OpRecord& record, int peer) noexcept {
  if (peer < 0 || peer >= base::kNoPeer) return false;
  const auto own = static_cast<uint16_t>(peer);
  for (auto& kept : record.peers) {
    if (kept == base::kNoPeer) kept = own;
    if (kept == own) return true;
  }
  return false;
}

}  // namespace

template <class Op>
base::OpRecord make_record(const Op& op) noexcept {
  base::OpRecord record;
  record.kind = static_cast<uint8_t>(Op::kName);
  if constexpr (requires { op.async_op; }) record.async_op = op.async_op;
  if constexpr (requires { op.op; }) record.reduce_op = static_cast<uint8_t>(op.op.type());
  if constexpr (requires { op.root; }) record.root_or_peer = op.root;
  if constexpr (requires { op.peer; }) record.root_or_peer = op.peer;
  if constexpr (requires { op.tensor; }) {
    record.elements_in = record.elements_out = count(op.tensor);
    if (Op::kName == OpName::send) record.elements_out = 0;
    if (Op::kName == OpName::recv) record.elements_in = 0;
    describe(record, op.tensor);
  }
  if constexpr (requires { op.input; }) {
    record.elements_in = count(op.input);
    record.elements_out = count(op.output);
    // The side with one tensor always has a tensor; a list may be empty on ranks that do not use
    // it.
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(op.input)>, at::Tensor>)
      describe(record, op.input);
    else
      describe(record, op.output);
  }
  if constexpr (requires { op.ops; }) {
    for (const auto& entry : op.ops)
      (entry.type == P2POpType::SEND ? record.elements_in : record.elements_out) +=
          count(entry.tensor);
    if (!op.ops.empty()) describe(record, op.ops.front().tensor);
    if (!std::ranges::all_of(op.ops,
                             [&](const auto& entry) { return keep_peer(record, entry.peer); }))
      record.peers = {base::kNoPeer, base::kNoPeer};
  }
  return record;
}

std::string_view record_vocabulary() {
  static const std::string text = [] {
    std::string out = "ops";
    for (int i = 0; i < kOpNameCount; ++i) (out += ' ') += opToString(static_cast<OpName>(i));
    out += "\ndtypes";
    for (int i = 0; i < static_cast<int>(at::ScalarType::Undefined); ++i)
      (out += ' ') += dtype_name(static_cast<at::ScalarType>(i));
    out += "\nreductions";
    for (int i = 0; i <= static_cast<int>(RedOpType::AVG); ++i)
      (out += ' ') += toString(static_cast<RedOpType>(i));
    out += "\nerrors -";
    size_t count = 0;
    const ErrcRow* rows = errc_rows(&count);
    for (size_t i = 0; i < count; ++i) (out += ' ') += rows[i].name;
    return out + "\n";
  }();
  return text;
}

uint8_t error_number(const std::exception_ptr& error) noexcept {
  if (!error) return 0;
  try {
    std::rethrow_exception(error);
  } catch (const CommError& known) {
    return static_cast<uint8_t>(static_cast<int>(known.code()) + 1);
  } catch (...) {
    return tracing::kOtherError;
  }
}

#define TC_INSTANTIATE(Op) template base::OpRecord make_record(const Op&) noexcept;
TC_FOR_EACH_OPERATION(TC_INSTANTIATE)
#undef TC_INSTANTIATE

}  // namespace torch::comms
