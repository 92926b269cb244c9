#include <pybind11/stl.h>

#include <torchcomms/batch.hpp>

#include "bindings/bindings.hpp"
#include "bindings/repr.hpp"

namespace torch::comms::bindings {

void bind_batch(py::module_& module) {
  py::class_<BatchSendRecv> batch(module, "BatchSendRecv", graph_metaclass(),
                                  R"(Sends and receives issued as one group.

From TorchComm.batch_op_create(). Several operations to one peer match in order; mixed orders cannot deadlock.)");
  batch
      .def("send", &BatchSendRecv::send, py::arg("tensor"), py::arg("dst"),
           "Appends a send. Nothing is checked or sent before issue().")
      .def("recv", &BatchSendRecv::recv, py::arg("tensor"), py::arg("src"),
           "Appends a receive. Nothing is checked or sent before issue().")
      .def(
          "issue",
          [](BatchSendRecv& self, const py::object& async_op, const BatchP2POptions& options) {
            const int truth = PyObject_IsTrue(async_op.ptr());
            if (truth < 0) throw py::error_already_set();
            py::gil_scoped_release released;
            return self.issue(truth == 1, options);
          },
          py::arg("async_op"), py::arg_v("options", BatchP2POptions(), "BatchP2POptions()"),
          R"(Runs all entries as one group; the list stays, so issuing again repeats it.

Raises InvalidArgument for an empty batch, a peer out of range or an unusable tensor, before anything is sent.)")
      .def_readwrite("ops", &BatchSendRecv::ops,
                     "list[P2POp]. Reading gives a new list; assigning replaces the batch.");
  def_repr(batch);
}

}  // namespace torch::comms::bindings
