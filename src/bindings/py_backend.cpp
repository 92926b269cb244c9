#include "bindings/py_backend.hpp"
#include "bindings/released.hpp"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <torchcomms/base/error.hpp>

namespace torch::comms::bindings {

py::function PyBackend::find(const char* method) const {
  return py::get_override(static_cast<const TorchCommBackend*>(this), method);
}

py::function PyBackend::require(const char* method) const {
  if (py::function override = find(method)) return override;
  throw CommError(
      Errc::kUnsupported,
      std::string(method) + " not implemented: this Python backend does not override it",
      {.comm = given_name_});
}

std::shared_ptr<TorchCommBackend> PyBackend::hold(py::object instance) {
  auto* backend = instance.cast<TorchCommBackend*>();
  return {backend, [held = std::make_shared<py::object>(std::move(instance))](TorchCommBackend*) {
            if (WithLock::is_out_of_reach()) return static_cast<void>(held->release());
            const WithLock lock;
            *held = py::object();
          }};
}

std::shared_ptr<TorchCommBackend> PyBackend::create(const py::object& type) {
  const WithLock lock;
  py::object instance = type();
  if (!py::isinstance<TorchCommBackend>(instance))
    throw CommError(Errc::kInvalidArgument,
                    "register_backend: the class " + std::string(py::str(type)) +
                        " does not derive from torchcomms.TorchCommBackend",
                    {.op = "new_comm"});
  return hold(std::move(instance));
}

void PyBackend::remember(at::Device device, const std::string& name, const CommOptions& options) {
  remembers_ = true;
  device_ = device;
  given_name_ = name;
  options_ = options;
}

void PyBackend::init(at::Device device, const std::string& name, const CommOptions& options) {
  remember(device, name, options);
  const WithLock lock;
  if (py::function override = find("init")) override(py::cast(device), name, options);
}

std::string_view PyBackend::getBackendName() const {
  backend_name_ = call<std::string>("get_backend_name");
  return backend_name_;
}

std::string_view PyBackend::getCommName() const {
  const WithLock lock;
  const py::function override = find("get_comm_name");
  comm_name_ = override ? converted<std::string>("get_comm_name", override()) : given_name_;
  return comm_name_;
}

Capabilities PyBackend::capabilities() const {
  auto capabilities = Capabilities::all();
  capabilities.operations.reset(static_cast<size_t>(OpName::batch_op_issue));
  capabilities.strict_arguments = false;
  capabilities.self_messages = true;
  capabilities.final_finalize = false;
  return capabilities;
}

bool PyBackend::isInitialized() const {
  const WithLock lock;
  return find("get_rank") && find("get_size");
}

WorkPtr PyBackend::batch_op_issue(const std::vector<P2POp>&, bool, const BatchP2POptions&) {
  throw CommError(Errc::kUnsupported, "batches are not implemented for Python backends",
                  {.op = "batch_op_issue", .comm = given_name_});
}

std::shared_ptr<TorchCommBackend> PyBackend::split(const std::vector<int>& ranks,
                                                   const std::string& name,
                                                   const CommOptions& options) {
  const WithLock lock;
  const py::object child = require("split")(ranks, name, options);
  if (child.is_none()) return nullptr;
  if (!py::isinstance<TorchCommBackend>(child))
    wrong_result("split", child,
                 "None or an instance of a class derived from torchcomms.TorchCommBackend");
  auto backend = hold(child);
  if (auto* made = dynamic_cast<PyBackend*>(backend.get()); made && !made->remembers_)
    made->remember(device_, name, options);
  return backend;
}

}  // namespace torch::comms::bindings
