#include <pybind11/stl.h>

#include <torchcomms/batch.hpp>

#include "bindings/arguments/integer_arg.hpp"
#include "bindings/arguments/typed_arg.hpp"
#include "bindings/bindings.hpp"
#include "bindings/classes/deleted_constructors.hpp"
#include "bindings/classes/repr.hpp"
#include "bindings/gil.hpp"

namespace torch::comms::bindings {

void bind_batch(py::module_& module) {
  py::class_<BatchSendRecv> batch(module, "BatchSendRecv", graph_metaclass(),
                                  R"(Sends and receives issued as one group.

TorchComm.batch_op_create() creates one. Operations with one peer match in order; mixed orders cannot deadlock.)");
  def_no_constructor(batch, "TorchComm.batch_op_create() makes one");
  // The sentinel is never released, because it is a default argument.
  static const auto* const missing =
      new py::object(py::module_::import("builtins").attr("object")());
  batch
      .def(
          "send",
          [](BatchSendRecv& self, const TypedArg<at::Tensor>& tensor, const IntegerArg& dst) {
            self.send(tensor.as({"send", "tensor"}, "torch.Tensor"), dst.as<int>({"send", "dst"}));
          },
          py::arg("tensor"), py::arg("dst"),
          "Appends a send. Before issue(), only types are checked and nothing is sent.")
      .def(
          "recv",
          [](BatchSendRecv& self, const TypedArg<at::Tensor>& tensor, const IntegerArg& src) {
            self.recv(tensor.as({"recv", "tensor"}, "torch.Tensor"), src.as<int>({"recv", "src"}));
          },
          py::arg("tensor"), py::arg("src"),
          "Appends a receive. Before issue(), only types are checked and nothing is sent.")
      .def(
          "issue",
          [](BatchSendRecv& self, const py::object& async_op,
             const std::optional<TypedArg<BatchP2POptions>>& wanted) {
            if (async_op.is(*missing))
              throw py::type_error("issue() missing required argument 'async_op'");
            BatchP2POptions options;
            if (wanted)
              options = wanted->as({"issue", "options"}, "torchcomms.BatchP2POptions or None");
            const int is_async = PyObject_IsTrue(async_op.ptr());
            if (is_async < 0) throw py::error_already_set();
            ScopedGilRelease released;
            return self.issue(is_async == 1, options);
          },
          py::arg_v("async_op", *missing, "..."),
          py::arg_v("options", BatchP2POptions(), "BatchP2POptions()"),
          R"(Issues all entries as one group. The list is kept, so a second issue() repeats it.

options: BatchP2POptions; None: the defaults.
Raises InvalidArgument for an empty batch, a peer out of range or an unusable tensor, before anything is sent.)")
      .def_readwrite("ops", &BatchSendRecv::ops,
                     "list[P2POp]. Reading gives a new list; assigning replaces the batch.");
  def_repr(batch);
}

}  // namespace torch::comms::bindings
