#include <map>

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torchcomms/backend_wrapper.hpp>
#include <torchcomms/base/error.hpp>

#include "base/text/utf8.hpp"
#include "bindings/bindings.hpp"

namespace torch::comms::bindings {
namespace {

// The Python types of the errors, by Errc. They are never freed, because a translator may run while
// the interpreter ends.
std::map<Errc, PyObject*>& error_types() {
  static auto* types = new std::map<Errc, PyObject*>;
  return *types;
}

// Returns: Python's own exception type that an error also derives from, so that callers who catch
// that type keep working.
PyObject* python_base(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
      return PyExc_ValueError;
    case Errc::kOutOfRange:
      return PyExc_IndexError;
    case Errc::kBackendUnavailable:
      return PyExc_ModuleNotFoundError;
    case Errc::kUnsupported:
      return PyExc_NotImplementedError;
    case Errc::kTimeout:
      return PyExc_TimeoutError;
    default:
      return nullptr;
  }
}

PyObject* make_type(const std::string& name, const char* doc, const py::tuple& bases) {
  PyObject* type =
      PyErr_NewExceptionWithDoc(("torchcomms." + name).c_str(), doc, bases.ptr(), nullptr);
  if (type == nullptr) throw py::error_already_set();
  return type;
}

// Returns: the error type of torch that a start-up error also derives from, because programs catch
// torch's rendezvous errors; null if there is none.
const char* torch_error_type(const CommError& error) {
  const auto& op = error.context().op;
  if (op != "new_comm" && op != "createPrefixStore" && op != "dupPrefixStore") return nullptr;
  if (error.code() == Errc::kTimeout) return "_DistStoreError";
  return error.code() == Errc::kPeerFailed ? "_DistNetworkError" : nullptr;
}

// Returns: a type with the name of `type` that also derives from torch's error type. Unpickled
// copies are of `type` only.
py::object with_torchs(const py::object& type, const char* name) {
  const auto torch = py::module_::import("torch._C");
  if (!py::hasattr(torch, name)) return type;  // torch was built without torch.distributed
  const py::cpp_function reduce(
      [type](const py::object& error) {
        return py::make_tuple(type, error.attr("args"), error.attr("__dict__"));
      },
      py::name("__reduce__"), py::is_method(type));
  const py::dict body(py::arg("__module__") = type.attr("__module__"),
                      py::arg("__doc__") = type.attr("__doc__"), py::arg("__reduce__") = reduce);
  return py::module_::import("builtins")
      .attr("type")(type.attr("__name__"), py::make_tuple(type, torch.attr(name)), body);
}

// Needs the GIL.
py::object type_of(const CommError& error) {
  auto type = py::reinterpret_borrow<py::object>(error_types().at(error.code()));
  const char* const name = torch_error_type(error);
  if (name == nullptr) return type;
  static auto* const torch_types = new std::map<Errc, py::object>;
  auto& known = (*torch_types)[error.code()];
  if (!known) known = with_torchs(type, name);
  return known;
}

// Texts may quote data of a peer, a file or a variable, which may be invalid UTF-8.
py::dict attributes_of(const CommError& error) {
  const auto& context = error.context();
  return py::dict(py::arg("op") = base::replace_invalid_utf8(context.op),
                  py::arg("comm") = base::replace_invalid_utf8(context.comm),
                  py::arg("rank") = context.rank, py::arg("peer") = context.peer,
                  py::arg("seq") = context.seq,
                  py::arg("limit") = std::chrono::duration<double>(context.limit).count(),
                  py::arg("culprits") = py::tuple(py::cast(context.culprits)),
                  py::arg("why") = base::replace_invalid_utf8(error.why()));
}

void raise(const CommError& error) {
  const py::object type = type_of(error);
  const py::object exception = type(base::replace_invalid_utf8(error.what()));
  for (const auto& [name, value] : attributes_of(error)) py::setattr(exception, name, value);
  PyErr_SetObject(type.ptr(), exception.ptr());
}

// A CommError that torch's own code can raise, for example autograd when DDP waits. torch creates
// the error from a type and a text.
class TorchVisibleError : public torch::PyTorchError {
 public:
  explicit TorchVisibleError(const CommError& error)
      : PyTorchError(base::replace_invalid_utf8(error.what())), error_(error) {}
  const CommError& error() const noexcept { return error_; }
  // torch calls this with the GIL held and creates the error at once. The attributes are class
  // attributes of a type that only this error uses.
  PyObject* python_type() override {
    const py::object type = type_of(error_);
    py::dict body = attributes_of(error_);
    body["__module__"] = type.attr("__module__");
    body["__doc__"] = type.attr("__doc__");
    static auto* const last = new py::object;
    *last = py::module_::import("builtins")
                .attr("type")(type.attr("__name__"), py::make_tuple(type), body);
    return last->ptr();
  }

 private:
  CommError error_;
};

std::exception_ptr to_torch_visible(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError& typed) {
    return std::make_exception_ptr(TorchVisibleError(typed));
  } catch (...) {
    return error;
  }
}

// The signature is fixed by pybind11.  NOLINTNEXTLINE(performance-unnecessary-value-param)
void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const CommError& error) {
    raise(error);
  } catch (const TorchVisibleError& error) {
    raise(error.error());
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(pointer);
  }
}

}  // namespace

void bind_errors(py::module_& module) {
  constexpr const char* kBaseDoc =
      "Base of all errors of torchcomms.\n\n"
      "Attributes: op (operation), comm (communicator), rank, peer (-1: none), seq (number of the\n"
      "operation in its communicator, 0: none), limit (the operation's timeout in seconds; 0.0: "
      "none\n"
      "or not known), culprits (tuple of the ranks at fault, as far as they are known), why (the\n"
      "reason alone).";
  PyObject* base = make_type("CommError", kBaseDoc, py::make_tuple(py::handle(PyExc_RuntimeError)));
  module.attr("CommError") = py::handle(base);

  size_t count = 0;
  const ErrcRow* rows = errc_rows(&count);
  PyObject* invalid = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const ErrcRow& row = rows[i];
    if (std::string_view(row.name) == "CommError") {
      error_types()[row.code] = base;
      continue;
    }
    // OutOfRange derives from InvalidArgument.
    const py::handle parent(row.code == Errc::kOutOfRange ? invalid : base);
    PyObject* also = python_base(row.code);
    py::tuple bases = py::make_tuple(parent);
    if (also != nullptr) bases = py::make_tuple(parent, py::handle(also));
    PyObject* type = make_type(row.name, row.doc, bases);
    if (row.code == Errc::kInvalidArgument) invalid = type;
    error_types()[row.code] = type;
    module.attr(row.name) = py::handle(type);
  }
  py::register_exception_translator(&translate);
  WorkWrapper::setFutureError(&to_torch_visible);
}

}  // namespace torch::comms::bindings
