#include <array>
#include <string>
#include <tuple>
#include <vector>

#include <torchcomms/comm.hpp>

#include "bindings/arguments/arg.hpp"
#include "bindings/bindings.hpp"
#include "bindings/classes/operation_docs.hpp"
#include "bindings/gil.hpp"

// Binds the operations of TorchComm as Python methods. They use CPython's vectorcall directly,
// because a general dispatcher costs more than an operation on small messages. kOperations has one
// row per operation. Parsing, conversion, the signature in the docstring and the call follow from
// the row and the type of the C++ method.
namespace torch::comms::bindings {
namespace {

constexpr size_t kMaxParameters = 5;  // in addition to hints and timeout

// A parameter's name, and an older name that is accepted as a keyword, too.
struct Parameter {
  const char* name = nullptr;
  const char* legacy_name = nullptr;
};

template <auto Method>
struct OperationBinding {
  static constexpr auto kMethod = Method;
  const char* name;
  std::array<Parameter, kMaxParameters> parameters;
  docs::OperationDoc doc;
};

constexpr std::tuple kOperations{
    OperationBinding<&TorchComm::send>{"send", {{{"tensor"}, {"dst"}, {"async_op"}}}, docs::kSend},
    OperationBinding<&TorchComm::recv>{"recv", {{{"tensor"}, {"src"}, {"async_op"}}}, docs::kRecv},
    OperationBinding<&TorchComm::broadcast>{
        "broadcast", {{{"tensor"}, {"root"}, {"async_op"}}}, docs::kBroadcast},
    OperationBinding<&TorchComm::all_reduce>{
        "all_reduce", {{{"tensor"}, {"op"}, {"async_op"}}}, docs::kAllReduce},
    OperationBinding<&TorchComm::reduce>{
        "reduce", {{{"tensor"}, {"root"}, {"op"}, {"async_op"}}}, docs::kReduce},
    OperationBinding<&TorchComm::all_gather>{
        "all_gather", {{{"tensor_list"}, {"tensor"}, {"async_op"}}}, docs::kAllGather},
    OperationBinding<&TorchComm::all_gather_v>{
        "all_gather_v", {{{"tensor_list"}, {"tensor"}, {"async_op"}}}, docs::kAllGatherV},
    OperationBinding<&TorchComm::all_gather_single>{
        "all_gather_single", {{{"output"}, {"input"}, {"async_op"}}}, docs::kAllGatherSingle},
    OperationBinding<&TorchComm::reduce_scatter>{
        "reduce_scatter",
        {{{"output"}, {"input_list"}, {"op"}, {"async_op"}}},
        docs::kReduceScatter},
    OperationBinding<&TorchComm::reduce_scatter_v>{
        "reduce_scatter_v",
        {{{"output"}, {"input_list"}, {"op"}, {"async_op"}}},
        docs::kReduceScatterV},
    OperationBinding<&TorchComm::reduce_scatter_single>{
        "reduce_scatter_single",
        {{{"output"}, {"input"}, {"op"}, {"async_op"}}},
        docs::kReduceScatterSingle},
    OperationBinding<&TorchComm::all_to_all_single>{
        "all_to_all_single", {{{"output"}, {"input"}, {"async_op"}}}, docs::kAllToAllSingle},
    OperationBinding<&TorchComm::all_to_all_v_single>{"all_to_all_v_single",
                                                      {{{"output"},
                                                        {"input"},
                                                        {"output_split_sizes", "output_splits"},
                                                        {"input_split_sizes", "input_splits"},
                                                        {"async_op"}}},
                                                      docs::kAllToAllVSingle},
    OperationBinding<&TorchComm::all_to_all>{"all_to_all",
                                             {{{"output_tensor_list", "output_list"},
                                               {"input_tensor_list", "input_list"},
                                               {"async_op"}}},
                                             docs::kAllToAll},
    OperationBinding<&TorchComm::barrier>{"barrier", {{{"async_op"}}}, docs::kBarrier},
    OperationBinding<&TorchComm::scatter>{"scatter",
                                          {{{"output_tensor", "output"},
                                            {"input_tensor_list", "input_list"},
                                            {"root"},
                                            {"async_op"}}},
                                          docs::kScatter},
    OperationBinding<&TorchComm::gather>{"gather",
                                         {{{"output_tensor_list", "output_list"},
                                           {"input_tensor", "input"},
                                           {"root"},
                                           {"async_op"}}},
                                         docs::kGather},
    OperationBinding<&TorchComm::gather_single>{
        "gather_single", {{{"output"}, {"input"}, {"root"}, {"async_op"}}}, docs::kGatherSingle},
};
constexpr size_t kOperationCount = std::tuple_size_v<decltype(kOperations)>;

// The parameter types of a method, without the options.
template <class Method>
struct Signature;
template <class... Parameters>
struct Signature<WorkPtr (TorchComm::*)(Parameters...)> {
  static constexpr size_t kCount = sizeof...(Parameters) - 1;
  template <size_t I>
  using Bare = std::remove_cvref_t<std::tuple_element_t<I, std::tuple<Parameters...>>>;
  using Options = Bare<kCount>;
};

struct Keywords {
  std::array<PyObject*, kMaxParameters + 2> names{};         // interned; hints and timeout last
  std::array<PyObject*, kMaxParameters + 2> legacy_names{};  // interned, or null
};

template <size_t Index>
using RowType = std::tuple_element_t<Index, decltype(kOperations)>;
template <size_t Index>
using SignatureOf = Signature<std::remove_cv_t<decltype(RowType<Index>::kMethod)>>;

template <size_t Index>
constexpr const auto& row() {
  return std::get<Index>(kOperations);
}

template <size_t Index>
const Keywords& keywords() {
  static const Keywords table = [] {
    Keywords result;
    constexpr size_t count = SignatureOf<Index>::kCount;
    for (size_t i = 0; i < count; ++i) {
      const Parameter& parameter = row<Index>().parameters[i];
      result.names[i] = PyUnicode_InternFromString(parameter.name);
      if (parameter.legacy_name)
        result.legacy_names[i] = PyUnicode_InternFromString(parameter.legacy_name);
    }
    result.names[count] = PyUnicode_InternFromString("hints");
    result.names[count + 1] = PyUnicode_InternFromString("timeout");
    return result;
  }();
  return table;
}

// Returns: the index of the parameter `name`, or `count`. Names in code are interned, so comparing
// pointers nearly always suffices.
size_t find_parameter(const Keywords& table, size_t count, PyObject* name) {
  for (size_t i = 0; i < count; ++i)
    if (table.names[i] == name) return i;
  for (size_t i = 0; i < count; ++i) {
    if (PyUnicode_Compare(table.names[i], name) == 0) return i;
    if (table.legacy_names[i] != nullptr && PyUnicode_Compare(table.legacy_names[i], name) == 0)
      return i;
  }
  return count;
}

// Sorts the arguments of a vectorcall into `slots`, one per parameter. Slots of absent arguments
// stay null.
void sort_arguments(const char* function, const Keywords& table, size_t required, PyObject** slots,
                    PyObject* const* args, Py_ssize_t positional, PyObject* keyword_names) {
  const size_t count = required + 2;
  const auto given = static_cast<size_t>(positional);
  if (given > count)
    throw py::type_error(std::string(function) + "() takes at most " + std::to_string(count) +
                         " arguments, " + std::to_string(given) + " were given");
  for (size_t i = 0; i < given; ++i) slots[i] = args[i];
  const Py_ssize_t named = keyword_names ? PyTuple_GET_SIZE(keyword_names) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keyword_names, i);
    const size_t at = find_parameter(table, count, name);
    if (at == count)
      throw py::type_error(std::string(function) + "() got an unexpected keyword argument '" +
                           py::cast<std::string>(py::handle(name)) + "'");
    if (slots[at] != nullptr)
      throw py::type_error(std::string(function) + "() got multiple values for argument '" +
                           py::cast<std::string>(py::handle(name)) + "'");
    slots[at] = args[positional + i];
  }
  for (size_t i = 0; i < required; ++i)
    if (slots[i] == nullptr)
      throw py::type_error(std::string(function) + "() missing required argument '" +
                           py::cast<std::string>(py::handle(table.names[i])) + "'");
}

// Returns: the Python object of a work as py::cast() would create it, without two steps that take
// longer than the rest. The class is known, and the object is not registered under the work's
// address. A later cast of the same work therefore creates another object, which is equal but not
// identical. Hooks of the call have run before; if they received an object, it is returned.
PyObject* new_object(WorkPtr work) {
  static auto* const known = py::detail::get_type_info(typeid(TorchWork));
  if (auto seen = py::detail::find_registered_python_instance(work.get(), known)) return seen.ptr();
  PyObject* const object = py::detail::make_new_instance(known->type);
  auto* const instance = reinterpret_cast<py::detail::instance*>(object);
  instance->owned = true;
  auto part = instance->get_value_and_holder(known);
  part.value_ptr() = work.get();
  new (&part.holder<WorkPtr>()) WorkPtr(std::move(work));
  part.set_holder_constructed();
  return object;
}

// The completed work that synchronous operations share has one Python object, which is never freed.
PyObject* to_python(WorkPtr work) {
  if (work.get() == completedWork().get()) {
    static PyObject* const shared = py::cast(completedWork()).release().ptr();
    Py_INCREF(shared);
    return shared;
  }
  return new_object(std::move(work));
}

template <class T>
T& load(Arg<T>& arg, const ArgumentLocation& place, PyObject* object) {
  arg.load(object);
  return arg.get(place);
}

// Converts `hints` and `timeout` into the options of an operation. A null pointer or None keeps the
// default.
void load_options(const char* function, PyObject* hints, PyObject* timeout,
                  OperationOptions& options) {
  if (hints != nullptr && hints != Py_None) {
    Arg<Hints> given;
    options.hints = std::move(load(given, {function, "hints"}, hints));
  }
  if (timeout != nullptr && timeout != Py_None) {
    TimeoutArg given;
    options.timeout = load(given, {function, "timeout"}, timeout);
  }
}

template <auto Method, size_t... I>
WorkPtr invoke(const OperationBinding<Method>& row, TorchComm& comm, PyObject* const* slots,
               std::index_sequence<I...>) {
  using Types = Signature<decltype(Method)>;
  std::tuple<Arg<typename Types::template Bare<I>>...> arguments;
  const std::tuple<typename Types::template Bare<I>&...> values{
      load(std::get<I>(arguments), {row.name, row.parameters[I].name}, slots[I])...};
  typename Types::Options options;
  load_options(row.name, slots[sizeof...(I)], slots[sizeof...(I) + 1], options);
  ScopedGilRelease released;
  return (comm.*Method)(std::get<I>(values)..., options);
}

template <size_t Index>
PyObject* entry(PyObject* self, PyObject* const* args, Py_ssize_t positional,
                PyObject* keyword_names) noexcept {
  try {
    constexpr size_t required = SignatureOf<Index>::kCount;
    PyObject* slots[required + 2] = {};
    sort_arguments(row<Index>().name, keywords<Index>(), required, slots, args, positional,
                   keyword_names);
    TorchComm* comm = unwrap<TorchComm>(self);
    if (comm == nullptr)
      throw_wrong_type({row<Index>().name, "self"}, "TorchComm", describe_value(self));
    return to_python(invoke(row<Index>(), *comm, slots, std::make_index_sequence<required>{}));
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (...) {
    py::detail::try_translate_exceptions();
  }
  return nullptr;
}

// The type that the signature of an operation shows for a parameter.
template <class T>
constexpr const char* kTypeText = kSignatureType<T>.text;
template <>
constexpr const char* kTypeText<Tensors> = "list[torch.Tensor]";
template <>
constexpr const char* kTypeText<Splits> = "list[int]";
template <>
constexpr const char* kTypeText<int> = "int";
template <>
constexpr const char* kTypeText<ReduceOp> = "torchcomms._comms.ReduceOp";

// Returns: "all_reduce(self: torchcomms._comms.TorchComm, tensor: torch.Tensor, ...) -> ...", in
// the form that stub generators read.
template <size_t Index, size_t... I>
std::string signature(std::index_sequence<I...>) {
  using Types = SignatureOf<Index>;
  std::string text = std::string(row<Index>().name) + "(self: torchcomms._comms.TorchComm";
  ((text += std::string(", ") + row<Index>().parameters[I].name + ": " +
            kTypeText<typename Types::template Bare<I>>),
   ...);
  return text +
         ", hints: dict[str, str] | None = None, timeout: datetime.timedelta | float | None = None)"
         " -> torchcomms._comms.TorchWork\n\n";
}

template <size_t Index>
PyMethodDef definition() {
  constexpr size_t required = SignatureOf<Index>::kCount;
  // The texts are static because method definitions live as long as the type, which is until the
  // process exits.
  static const std::string doc = signature<Index>(std::make_index_sequence<required>{}) +
                                 row<Index>().doc.purpose_and_args + docs::kOptionsAndErrors +
                                 row<Index>().doc.cost;
  return {row<Index>().name,
          reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&entry<Index>)),
          METH_FASTCALL | METH_KEYWORDS, doc.c_str()};
}

template <size_t... Index>
std::array<PyMethodDef, kOperationCount> definitions(std::index_sequence<Index...>) {
  return {definition<Index>()...};
}

}  // namespace

void bind_operations(py::module_&, py::handle comm_class) {
  static auto methods = definitions(std::make_index_sequence<kOperationCount>{});
  for (auto& method : methods) {
    const auto descriptor = py::reinterpret_steal<py::object>(
        PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(comm_class.ptr()), &method));
    if (!descriptor) throw py::error_already_set();
    comm_class.attr(method.ml_name) = descriptor;
  }
}

}  // namespace torch::comms::bindings
