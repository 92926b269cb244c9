#include <optional>
#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>
#include <torchcomms/types.hpp>
#include <torchcomms/window.hpp>

#include "bindings/arguments/arg.hpp"
#include "bindings/bindings.hpp"
#include "bindings/classes/repr.hpp"
#include "bindings/gil.hpp"
#include "core/comm/operand_checks.hpp"

namespace torch::comms::bindings {
namespace {

void bind_enums(py::module_& module) {
  py::enum_<RedOpType> red_op_type(module, "RedOpType", "The kinds of reduction.");
  for (int i = 0; i <= static_cast<int>(RedOpType::AVG); ++i)
    red_op_type.value(std::string(toString(static_cast<RedOpType>(i))).c_str(),
                      static_cast<RedOpType>(i));

  py::enum_<WorkStatus> work_status(module, "WorkStatus", "The states of a work.");
  for (int i = 0; i <= static_cast<int>(WorkStatus::ERROR); ++i)
    work_status.value(std::string(toString(static_cast<WorkStatus>(i))).c_str(),
                      static_cast<WorkStatus>(i));

  py::enum_<OpName> op_name(module, "OpName", "The hooked entry points of a communicator.");
  for (int i = 0; i < kOpNameCount; ++i)
    op_name.value(std::string(opToString(static_cast<OpName>(i))).c_str(), static_cast<OpName>(i));

  py::enum_<P2POpType>(module, "P2POpType", "Direction of an entry of a batch.")
      .value("SEND", P2POpType::SEND)
      .value("RECV", P2POpType::RECV);
}

// The pickled state of a ReduceOp: the name of its type, and the factor of PREMUL_SUM.
using ReduceOpState = std::pair<std::string, std::optional<PreMulSumFactorT>>;

ReduceOpState state_of(const ReduceOp& op) {
  ReduceOpState state(toString(op.type()), std::nullopt);
  if (const auto* factor = op.factor()) state.second = *factor;
  return state;
}

// Throws: CommError(kInvalidArgument) for a state that no ReduceOp has.
ReduceOp reduce_op_of(ReduceOpState state) {
  auto& [name, factor] = state;
  for (int i = 0; i <= static_cast<int>(RedOpType::AVG); ++i) {
    const auto type = static_cast<RedOpType>(i);
    if (name != toString(type) || factor.has_value() != (type == RedOpType::PREMUL_SUM)) continue;
    return factor ? ReduceOp::make_nccl_premul_sum(std::move(*factor)) : ReduceOp(type);
  }
  throw CommError(Errc::kInvalidArgument,
                  "the pickle has reduce op '" + name + "' " + (factor ? "with" : "without") +
                      " a factor: allowed are PREMUL_SUM with one, and the other types without");
}

void bind_reduce_op(py::module_& module) {
  py::class_<ReduceOp> reduce_op(module, "ReduceOp", graph_metaclass(),
                                 R"(How elements are combined; immutable.

Constants: SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, AVG; and PREMUL_SUM(factor).
Compares by type and factor. AVG of integers truncates toward zero.)");
  reduce_op
      .def(
          py::init<RedOpType>(), py::arg("opType"),
          "From a RedOpType. Raises InvalidArgument for PREMUL_SUM, whose factor would be missing.")
      .def_property_readonly("type", &ReduceOp::type, "The RedOpType.")
      .def_static(
          "PREMUL_SUM",
          [](PreMulSumFactorT factor) { return ReduceOp::make_nccl_premul_sum(std::move(factor)); },
          py::arg("factor"),
          "Multiplies this rank's input by `factor` (a number, or a one-element tensor) before the "
          "sum.")
      .def_property_readonly(
          "_factor",
          [](const ReduceOp& self) -> std::optional<PreMulSumFactorT> {
            if (const auto* factor = self.factor()) return *factor;
            return std::nullopt;
          },
          "The factor of PREMUL_SUM; None for every other type.")
      .def("__eq__",
           [](const ReduceOp& self, const py::object& other) {
             return py::isinstance<ReduceOp>(other) && self == other.cast<const ReduceOp&>();
           })
      .def("__hash__", &ReduceOp::hash)
      .def("__copy__", [](const ReduceOp& self) { return ReduceOp(self); })
      .def(
          "__deepcopy__",
          [](const py::object& self, const py::dict& memo) {
            py::object copy = py::cast(ReduceOp(self.cast<const ReduceOp&>()));
            memo[py::int_(reinterpret_cast<uintptr_t>(self.ptr()))] = copy;
            return copy;
          },
          py::arg("memo"))
      .def(py::pickle(&state_of, &reduce_op_of));
  def_repr(reduce_op);
  for (const ReduceOp* op : {&ReduceOp::SUM, &ReduceOp::PRODUCT, &ReduceOp::MIN, &ReduceOp::MAX,
                             &ReduceOp::BAND, &ReduceOp::BOR, &ReduceOp::BXOR, &ReduceOp::AVG})
    reduce_op.attr(std::string(toString(op->type())).c_str()) =
        py::cast(op, py::return_value_policy::reference);
}

// Threads: any.
std::string class_name(const at::Tensor& tensor) {
  const ScopedGilAcquire lock;
  return Py_TYPE(py::cast(tensor).ptr())->tp_name;
}

}  // namespace

void bind_types(py::module_& module) {
  set_tensor_class_name(&class_name);
  bind_enums(module);
  bind_reduce_op(module);
  py::class_<P2POp> entry(module, "P2POp", "One entry of a batch: P2POp(type, tensor, peer).");
  entry
      .def(py::init([](P2POpType type, const TensorArg& operand, int peer) {
             return P2POp{type, operand.tensor, peer};
           }),
           py::arg("type"), py::arg("tensor"), py::arg("peer"))
      .def_readwrite("type", &P2POp::type, "P2POpType.SEND or P2POpType.RECV.")
      .def_readwrite("tensor", &P2POp::tensor, "The tensor to send, or to receive into.")
      .def_readwrite("peer", &P2POp::peer, "The peer rank; checked when the batch is issued.");
  def_repr(entry);
}

}  // namespace torch::comms::bindings
