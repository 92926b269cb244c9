#include "bindings/python_backend/py_backend.hpp"
#include "bindings/gil.hpp"

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
      {.comm = init_name_});
}

std::shared_ptr<TorchCommBackend> PyBackend::wrap_instance(py::object instance) {
  auto* backend = instance.cast<TorchCommBackend*>();
  return {backend, [held = std::make_shared<py::object>(std::move(instance))](TorchCommBackend*) {
            if (ScopedGilAcquire::is_unavailable()) return static_cast<void>(held->release());
            const ScopedGilAcquire lock;
            *held = py::object();
          }};
}

std::shared_ptr<TorchCommBackend> PyBackend::create(const py::object& type) {
  const ScopedGilAcquire lock;
  py::object instance = type();
  if (!py::isinstance<TorchCommBackend>(instance))
    throw CommError(Errc::kInvalidArgument,
                    "register_backend: the class " + std::string(py::str(type)) +
                        " does not derive from torchcomms.TorchCommBackend",
                    {.op = "new_comm"});
  return wrap_instance(std::move(instance));
}

void PyBackend::set_init_state(at::Device device, const std::string& name,
                               const CommOptions& options) {
  has_init_state_ = true;
  device_ = device;
  init_name_ = name;
  options_ = options;
}

void PyBackend::init(at::Device device, const std::string& name, const CommOptions& options) {
  set_init_state(device, name, options);
  const ScopedGilAcquire lock;
  if (py::function override = find("init")) override(py::cast(device), name, options);
}

std::string_view PyBackend::getBackendName() const {
  backend_name_ = call<std::string>("get_backend_name");
  return backend_name_;
}

std::string_view PyBackend::getCommName() const {
  const ScopedGilAcquire lock;
  const py::function override = find("get_comm_name");
  comm_name_ = override ? convert_result<std::string>("get_comm_name", override()) : init_name_;
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
  const ScopedGilAcquire lock;
  return find("get_rank") && find("get_size");
}

WorkPtr PyBackend::batch_op_issue(const std::vector<P2POp>&, bool, const BatchP2POptions&) {
  throw CommError(Errc::kUnsupported, "batches are not implemented for Python backends",
                  {.op = "batch_op_issue", .comm = init_name_});
}

std::shared_ptr<TorchCommBackend> PyBackend::split(const std::vector<int>& ranks,
                                                   const std::string& name,
                                                   const CommOptions& options) {
  const ScopedGilAcquire lock;
  const py::object child = require("split")(ranks, name, options);
  if (child.is_none()) return nullptr;
  if (!py::isinstance<TorchCommBackend>(child))
    throw_wrong_result("split", child,
                       "None or an instance of a class derived from torchcomms.TorchCommBackend");
  auto backend = wrap_instance(child);
  if (auto* py_backend = dynamic_cast<PyBackend*>(backend.get());
      py_backend && !py_backend->has_init_state_)
    py_backend->set_init_state(device_, name, options);
  return backend;
}

}  // namespace torch::comms::bindings
