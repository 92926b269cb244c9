#include <pybind11/chrono.h>

#include <torchcomms/store_manager.hpp>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"

namespace torch::comms::bindings {

void bind_stores(py::module_& module) {
  module.def(
      "_create_prefix_store", &createPrefixStore, ReleaseGil(), py::arg("prefix"),
      py::arg("timeout") = kStoreTimeout,
      R"(The store at MASTER_ADDR:MASTER_PORT under `prefix`; rank 0 serves it unless the launcher does.

Raises CommTimeout or PeerFailed naming the address within `timeout`.)");
  module.def(
      "_dup_prefix_store", &dupPrefixStore, ReleaseGil(), py::arg("prefix"),
      py::arg("bootstrap_store"), py::arg("timeout") = kStoreTimeout,
      R"(A new store under `prefix`, served by rank 0 and announced through `bootstrap_store`. Collective.

Raises CommTimeout or PeerFailed naming the address within `timeout`.)");
}

}  // namespace torch::comms::bindings
