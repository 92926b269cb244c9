#include <pybind11/pybind11.h>

#include "bindings/vendor/raw_communicator.hpp"

// The extension module torchcomms._vendor: direct access to vendor libraries, for `torchcomms
// doctor` and `torchcomms bench`.
namespace torch::comms::bindings {
namespace {

namespace py = pybind11;
using Library = std::shared_ptr<nccl::VendorLibrary>;

Library load(const std::string& backend) {
  std::string names;
  for (const auto* vendor :
       {&nccl::kNccl, &nccl::kNcclx, &nccl::kRccl, &nccl::kRcclx, &nccl::kOneCcl}) {
    if (vendor->backend == backend)
      return std::make_shared<nccl::VendorLibrary>(nccl::VendorLibrary::load(*vendor));
    names += (names.empty() ? "" : ", ") + std::string(vendor->backend);
  }
  throw CommError(Errc::kInvalidArgument,
                  "the vendor's backend is '" + backend + "', allowed are " + names);
}

void bind_library(py::module_& module) {
  py::class_<nccl::VendorLibrary, Library>(module, "Library", "A vendor's communication library.")
      .def(py::init(&load), py::arg("backend"), py::call_guard<py::gil_scoped_release>(),
           "Loads the library of a backend. Raises BackendUnavailable, which names what was "
           "searched.")
      .def_property_readonly("path", &nccl::VendorLibrary::path)
      .def_property_readonly("how", &nccl::VendorLibrary::selection_reason,
                             "Why this file was loaded.")
      .def_property_readonly("version", &nccl::VendorLibrary::version_text)
      .def_property_readonly("on_host_memory", &nccl::VendorLibrary::is_on_host_memory,
                             "Whether it works on CPU tensors, as stand-ins for tests do.")
      .def(
          "make_id",
          [](const nccl::VendorLibrary& library) {
            return py::bytes(nccl::Communicator::make_id(library, {.op = "raw make_id"}));
          },
          "The id with which all ranks connect to the rank that called this.");
}

void bind_communicator(py::module_& module) {
  using Raw = RawCommunicator;
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<Raw> raw(
      module, "RawCommunicator",
      "A communicator of the library without additions of torchcomms. It takes addresses and "
      "streams as integers, checks nothing, and keeps nothing alive.");
  raw.def(py::init([](const Library& library, int size, int rank, const py::bytes& id) {
            const std::string bytes = id;
            const py::gil_scoped_release release;
            return std::make_unique<Raw>(library, size, rank, bytes);
          }),
          py::arg("library"), py::arg("size"), py::arg("rank"), py::arg("id"),
          "Connects to the peer ranks, on the current device.");
  py::enum_<Raw::RawCollective>(raw, "Collective")
      .value("all_reduce", Raw::RawCollective::kAllReduce)
      .value("all_gather_single", Raw::RawCollective::kAllGather)
      .value("reduce_scatter_single", Raw::RawCollective::kReduceScatter)
      .value("broadcast", Raw::RawCollective::kBroadcast)
      .value("all_to_all_single", Raw::RawCollective::kAllToAll);
  py::class_<Raw::RawCallArguments>(raw, "Arguments",
                                    "The arguments of a call, created once for many calls.")
      .def(py::init([](uintptr_t input, uintptr_t output, size_t count, const std::string& dtype,
                       uintptr_t stream, int root) {
             return Raw::RawCallArguments{input, output, count, dtype_of(dtype), stream, root};
           }),
           py::arg("input"), py::arg("output"), py::arg("count"), py::arg("dtype"),
           py::arg("stream"), py::arg("root") = 0);
  raw.def("enqueue", &Raw::enqueue, py::arg("collective"), py::arg("arguments"), Released(),
          "Calls the library once.")
      .def("enqueue_many", &Raw::enqueue_many, py::arg("collective"), py::arg("arguments"),
           py::arg("times"), Released(),
           "Calls the library `times` times from C++. Returns the microseconds of one call.")
      .def("close", &Raw::close, Released(),
           "Closes the communicator. All operations must be done.");
}

}  // namespace
}  // namespace torch::comms::bindings

PYBIND11_MODULE(_vendor, module, pybind11::mod_gil_not_used()) {
  module.doc() = "Direct access to vendor libraries, for torchcomms.doctor and torchcomms.bench.";
  pybind11::module_::import("torchcomms._comms");  // registers the Python types of the errors
  torch::comms::bindings::bind_library(module);
  torch::comms::bindings::bind_communicator(module);
}
