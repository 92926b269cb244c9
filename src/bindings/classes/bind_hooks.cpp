#include <pybind11/stl.h>

#include <torchcomms/hooks.hpp>

#include "bindings/bindings.hpp"
#include "bindings/classes/repr.hpp"
#include "bindings/gil.hpp"
#include "bindings/python_backend/py_hooks.hpp"

namespace torch::comms::bindings {
namespace {

// The arguments that a Python pre-hook receives. They are copies, because a hook may keep them.
// Only the members of the operation are set and visible.
struct OwnedArgs {
  at::Tensor tensor, input_tensor, output_tensor;
  Tensors input_list, output_list;
  Splits input_split_sizes, output_split_sizes;
  std::vector<int> ranks;
  std::string name;
  int peer = -1, root = -1;
  size_t num_ops = 0;
  bool async_op = false;
};
template <class Op>
struct PyArgs : OwnedArgs {};

void keep(at::Tensor& tensor, Tensors&, const at::Tensor& value) { tensor = value; }
void keep(at::Tensor&, Tensors& list, const Tensors& value) { list = value; }

template <class Op>
PyArgs<Op> own(const Op& op) {
  PyArgs<Op> args;
  if constexpr (requires { op.tensor; }) args.tensor = op.tensor;
  if constexpr (requires { op.input; }) {
    keep(args.input_tensor, args.input_list, op.input);
    keep(args.output_tensor, args.output_list, op.output);
  }
  if constexpr (requires { op.input_split_sizes; }) {
    args.input_split_sizes = op.input_split_sizes;
    args.output_split_sizes = op.output_split_sizes;
  }
  if constexpr (requires { op.peer; }) args.peer = op.peer;
  if constexpr (requires { op.root; }) args.root = op.root;
  if constexpr (requires { op.ranks; }) {
    args.ranks = op.ranks;
    args.name = op.name;
  }
  if constexpr (requires { op.num_ops; }) args.num_ops = op.num_ops;
  if constexpr (requires { op.async_op; }) args.async_op = op.async_op;
  return args;
}

template <class Member>
constexpr bool is_tensor = std::is_same_v<std::remove_cvref_t<Member>, at::Tensor>;

template <class Op>
void bind_pre_args(py::module_& module, const char* name) {
  using Args = PyArgs<Op>;
  py::class_<Args> type(module, name,
                        "The arguments of an operation, as a pre-hook receives them. Read-only.");
  if constexpr (requires(Op op) { op.tensor; })
    type.def_readonly("tensor", &Args::tensor, "The tensor.");
  if constexpr (requires(Op op) { op.input; }) {
    if constexpr (is_tensor<decltype(Op::input)>)
      type.def_readonly("input", &Args::input_tensor, "The input tensor.");
    else
      type.def_readonly("input", &Args::input_list, "The input tensors.");
    if constexpr (is_tensor<decltype(Op::output)>)
      type.def_readonly("output", &Args::output_tensor, "The output tensor.");
    else
      type.def_readonly("output", &Args::output_list, "The output tensors.");
  }
  if constexpr (requires(Op op) { op.input_split_sizes; }) {
    type.def_readonly("input_split_sizes", &Args::input_split_sizes, "Rows sent to each rank.");
    type.def_readonly("output_split_sizes", &Args::output_split_sizes,
                      "Rows received from each rank.");
  }
  if constexpr (requires(Op op) { op.peer; })
    type.def_readonly("peer", &Args::peer, "The peer rank.");
  if constexpr (requires(Op op) { op.root; }) type.def_readonly("root", &Args::root, "The root.");
  if constexpr (requires(Op op) { op.ranks; }) {
    type.def_readonly("ranks", &Args::ranks, "The ranks of the group.");
    type.def_readonly("name", &Args::name, "The requested name.");
  }
  if constexpr (requires(Op op) { op.num_ops; })
    type.def_readonly("num_ops", &Args::num_ops, "Entries of the batch.");
  if constexpr (requires(Op op) { op.async_op; })
    type.def_readonly("async_op", &Args::async_op, "Whether the call is asynchronous.");
}

void bind_all_pre_args(py::module_& module) {
  bind_pre_args<Send>(module, "SendPreHookArgs");
  bind_pre_args<Recv>(module, "RecvPreHookArgs");
  bind_pre_args<Broadcast>(module, "BroadcastPreHookArgs");
  bind_pre_args<AllReduce>(module, "AllReducePreHookArgs");
  bind_pre_args<Reduce>(module, "ReducePreHookArgs");
  bind_pre_args<AllGather>(module, "AllGatherPreHookArgs");
  bind_pre_args<AllGatherV>(module, "AllGatherVPreHookArgs");
  bind_pre_args<AllGatherSingle>(module, "AllGatherSinglePreHookArgs");
  bind_pre_args<ReduceScatter>(module, "ReduceScatterPreHookArgs");
  bind_pre_args<ReduceScatterV>(module, "ReduceScatterVPreHookArgs");
  bind_pre_args<ReduceScatterSingle>(module, "ReduceScatterSinglePreHookArgs");
  bind_pre_args<AllToAllSingle>(module, "AllToAllSinglePreHookArgs");
  bind_pre_args<AllToAllVSingle>(module, "AllToAllVSinglePreHookArgs");
  bind_pre_args<AllToAll>(module, "AllToAllPreHookArgs");
  bind_pre_args<Barrier>(module, "BarrierPreHookArgs");
  bind_pre_args<Scatter>(module, "ScatterPreHookArgs");
  bind_pre_args<Gather>(module, "GatherPreHookArgs");
  bind_pre_args<GatherSingle>(module, "GatherSinglePreHookArgs");
  bind_pre_args<Split>(module, "SplitPreHookArgs");
  bind_pre_args<NewWindow>(module, "NewWindowPreHookArgs");
  bind_pre_args<BatchOpIssue>(module, "BatchOpIssuePreHookArgs");
  bind_pre_args<Finalize>(module, "FinalizePreHookArgs");
}

template <class Args>
void bind_post_args(py::module_& module, const char* name) {
  py::class_<Args>(module, name, "The argument of a post-hook. It has no attributes.");
}

// Returns: a Python callable that any thread may copy and drop without the GIL.
std::shared_ptr<py::function> share(py::function function) {
  return {new py::function(std::move(function)), [](py::function* held) {
            if (ScopedGilAcquire::is_unavailable()) return;
            const ScopedGilAcquire lock;
            delete held;
          }};
}

}  // namespace

PreHook to_pre_hook(py::function function) {
  return [callback = share(std::move(function))](size_t op_id, const PreHookArgs& args) {
    const ScopedGilAcquire lock;
    std::visit([&](const auto& op) { (*callback)(op.kName, op_id, own(op)); }, args);
  };
}

PostHook to_post_hook(py::function function) {
  return [callback = share(std::move(function))](size_t op_id, const PostHookArgs& args) {
    const ScopedGilAcquire lock;
    std::visit([&](const auto& typed) { (*callback)(op_id, typed); }, args);
  };
}

AbortHook to_abort_hook(py::function function) {
  return [callback = share(std::move(function))] {
    const ScopedGilAcquire lock;
    (*callback)();
  };
}

void bind_hooks(py::module_& module) {
  bind_all_pre_args(module);
  bind_post_args<CollectivePostHookArgs>(module, "CollectivePostHookArgs");
  bind_post_args<SplitPostHookArgs>(module, "SplitPostHookArgs");
  bind_post_args<NewWindowPostHookArgs>(module, "NewWindowPostHookArgs");
  bind_post_args<BatchOpIssuePostHookArgs>(module, "BatchOpIssuePostHookArgs");
  bind_post_args<FinalizePostHookArgs>(module, "FinalizePostHookArgs");
  for (const char* op : {"Send", "Recv", "Broadcast", "AllReduce", "Reduce", "AllGather",
                         "AllGatherV", "AllGatherSingle", "ReduceScatter", "ReduceScatterV",
                         "ReduceScatterSingle", "AllToAllSingle", "AllToAllVSingle", "AllToAll",
                         "Barrier", "Scatter", "Gather", "GatherSingle"})
    module.attr((std::string(op) + "PostHookArgs").c_str()) = module.attr("CollectivePostHookArgs");

  py::class_<RemovableHandle> handle(
      module, "RemovableHandle",
      "A registered hook. Dropping the handle leaves the hook registered.");
  handle.def("remove", &RemovableHandle::remove, ReleaseGil(),
             "Removes the hook. Idempotent; safe after the communicator is deleted.");
  def_repr(handle,
           [](const RemovableHandle&) { return bracketed("RemovableHandle", "of a hook"); });
}

}  // namespace torch::comms::bindings
