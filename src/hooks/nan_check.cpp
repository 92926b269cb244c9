#include <torchcomms/hooks/nan_check.hpp>

#include <string>
#include <type_traits>
#include <variant>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/isnan.h>
#include <c10/core/GradMode.h>
#include <torchcomms/base/error.hpp>

#include "core/comm/operand_checks.hpp"
#include "hooks/hook_registrations.hpp"
#include "hooks/operation_tensors.hpp"

namespace torch::comms {
namespace {

using Check = void(const at::Tensor&);

// Returns: PyTorch's own check, which on a GPU is one kernel without a wait; nothing if this
// version of PyTorch has no such check for the device.
std::optional<c10::TypedOperatorHandle<Check>> torch_check(const at::Tensor& tensor) {
  static const auto found =
      c10::Dispatcher::singleton().findSchema(c10::OperatorName("c10d::check_for_nan", ""));
  if (!found || !found->hasKernelForDispatchKey(
                    c10::computeDispatchKey(std::nullopt, std::nullopt, tensor.device())))
    return std::nullopt;
  return found->typed<Check>();
}

bool any_nan(const at::Tensor& tensor) {
  // Some versions of PyTorch cannot compare 8-bit types.
  const auto wide = tensor.element_size() == 1 ? tensor.to(at::kFloat) : tensor;
  return at::isnan(wide).any().item<bool>();
}

bool holds_nan(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return false;
  // PyTorch's check does not detect NaN in complex numbers.
  if (tensor.is_complex()) return any_nan(tensor);
  if (!tensor.is_floating_point()) return false;
  const auto check = torch_check(tensor);
  if (!check) return any_nan(tensor);
  try {
    check->call(tensor);
    return false;
  } catch (const c10::Error&) {
    return any_nan(tensor);  // the check has one error for a NaN and for an unknown dtype
  }
}

// Returns: whether this rank's part of an operation reads its tensors, and whether it writes them.
template <class Op>
std::pair<bool, bool> reads_and_writes(const Op& op, int rank) {
  const auto at_root = [&](bool otherwise) {
    if constexpr (requires { op.root; }) return op.root == rank || otherwise;
    return true;
  };
  switch (Op::kName) {
    case OpName::broadcast:
    case OpName::scatter:
      return {at_root(false), true};
    case OpName::gather:
    case OpName::gather_single:
      return {true, at_root(false)};
    default:
      return {true, true};
  }
}

struct NanChecker {
  bool inputs, outputs;
  std::string name;
  std::weak_ptr<TorchComm> comm;

  template <class Op>
  void check(const Op& op) const {
    if constexpr (Op::kName == OpName::batch_op_issue) return;
    const auto alive = comm.lock();
    const int rank = alive && alive->isConnected() ? alive->getRank() : -1;
    const auto [reads, writes] = reads_and_writes(op, rank);
    const OperationTensors tensors = operation_tensors(op);
    const bool both = tensors.in_place && reads;
    const bool look_in = reads && (inputs || (both && outputs));
    const bool look_out = writes && outputs && !both;
    if (look_in)
      check_tensors(tensors.inputs, inputs || !both ? "input" : "output", Op::kName, rank);
    if (look_out) check_tensors(tensors.outputs, "output", Op::kName, rank);
  }

  template <class List>
  void check_tensors(const List& tensors, const char* side, OpName op, int rank) const {
    const c10::NoGradGuard no_grad;
    const PlainDispatchGuard plain;
    for (size_t i = 0; i < tensors.size(); ++i)
      if (holds_nan(*tensors[i]))
        throw CommError(Errc::kInvalidArgument,
                        std::string("a NaN is in the ") + side +
                            (tensors.size() > 1 ? " tensor " + std::to_string(i) : ""),
                        {.op = std::string(opToString(op)), .comm = name, .rank = rank});
  }
};

}  // namespace

NanCheckHook::NanCheckHook(bool check_inputs, bool check_outputs)
    : inputs_(check_inputs),
      outputs_(check_outputs),
      registrations_(std::make_unique<HookRegistrations>()) {}
NanCheckHook::~NanCheckHook() = default;

void NanCheckHook::registerWithComm(const std::shared_ptr<TorchComm>& comm) {
  require_comm(comm);
  const NanChecker checker{inputs_, outputs_, std::string(comm->getCommName()), comm};
  HookRegistrations::Handles handles;
  handles.push_back(comm->registerPreHook([checker](size_t, const PreHookArgs& args) {
    std::visit([&](const auto& op) { checker.check(op); }, args);
  }));
  registrations_->add(comm, std::move(handles));
}

void NanCheckHook::unregister() { registrations_->remove_all(); }
bool NanCheckHook::isEnabled() const { return registrations_->has_any(); }

}  // namespace torch::comms
