#include <pybind11/stl.h>

#include <torchcomms/batch.hpp>

#include "bindings/arguments/arg.hpp"
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
          [](BatchSendRecv& self, Arg<at::Tensor> tensor, Arg<int> dst) {
            self.send(tensor.get({"send", "tensor"}), dst.get({"send", "dst"}));
          },
          py::arg("tensor"), py::arg("dst"),
          "Appends a send. Before issue(), only types are checked and nothing is sent.")
      .def(
          "recv",
          [](BatchSendRecv& self, Arg<at::Tensor> tensor, Arg<int> src) {
            self.recv(tensor.get({"recv", "tensor"}), src.get({"recv", "src"}));
          },
          py::arg("tensor"), py::arg("src"),
          "Appends a receive. Before issue(), only types are checked and nothing is sent.")
      .def(
          "issue",
          [](BatchSendRecv& self, const py::object& async_op,
             std::optional<Arg<BatchP2POptions>> given) {
            if (async_op.is(*missing))
              throw py::type_error("issue() missing required argument 'async_op'");
            const auto options = get_optional(given, {"issue", "options"});
            bool is_async = false;
            convert_arg(async_op.ptr(), is_async);
            ScopedGilRelease released;
            return self.issue(is_async, options.value_or(BatchP2POptions()));
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
