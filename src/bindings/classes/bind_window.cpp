#include <pybind11/stl.h>

#include <torchcomms/window.hpp>

#include "bindings/arguments/arg.hpp"
#include "bindings/bindings.hpp"
#include "bindings/classes/deleted_constructors.hpp"
#include "bindings/classes/repr.hpp"
#include "bindings/gil.hpp"

namespace torch::comms::bindings {
namespace {

using WindowClass = py::class_<TorchCommWindow, std::shared_ptr<TorchCommWindow>>;

template <class Options>
Options options_of(const char* method, Arg<Hints>& hints, std::optional<TimeoutArg>& timeout) {
  Options options;
  options.hints = std::move(hints.get({method, "hints"}));
  if (timeout) options.timeout = timeout->get({method, "timeout"});
  return options;
}

py::arg_v no_hints() { return py::arg("hints") = py::none(); }
py::arg_v no_timeout() { return py::arg("timeout") = py::none(); }

// Binds put() with each name that its last parameter has had.
void bind_put(WindowClass& window) {
  const auto put = [](TorchCommWindow& self, const TensorArg& operand, Arg<int> dst_rank,
                      Arg<uint64_t> offset, Arg<bool> async_op, Arg<Hints> hints,
                      std::optional<TimeoutArg> timeout) {
    return self.put(operand.tensor, dst_rank.get({"put", "dst_rank"}),
                    offset.get({"put", "target_offset_nelems"}), async_op.get({"put", "async_op"}),
                    options_of<PutOptions>("put", hints, timeout));
  };
  constexpr const char* kDoc =
      R"(Copies `tensor` into the window of `dst_rank`, which makes no call.

Args:
    tensor: contiguous, of any dtype.
    dst_rank: target rank; may be this rank.
    target_offset_nelems: offset in the window, in elements of `tensor`'s dtype. Older names: offset, target_disp.
    async_op: False returns when the data is in the window; True returns a work at once.
Raises:
    OutOfRange: the tensor does not fit into the window. Nothing was sent.
    PeerFailed, CommTimeout, Aborted: the communicator has ended.
    InvalidArgument: no tensor is registered, or rank or tensor is invalid. Nothing was sent.)";
  for (const char* offset : {"target_offset_nelems", "offset", "target_disp"})
    window.def("put", put, ReleaseGil(), py::arg("tensor"), py::arg("dst_rank"), py::arg(offset),
               py::arg("async_op"), no_hints(), no_timeout(), kDoc);
}

void bind_signals(WindowClass& window) {
  const auto signal = [](TorchCommWindow& self, Arg<int> peer_rank, Arg<bool> async_op,
                         Arg<Hints> hints, std::optional<TimeoutArg> timeout) {
    return self.signal(peer_rank.get({"signal", "peer_rank"}), async_op.get({"signal", "async_op"}),
                       options_of<SignalOptions>("signal", hints, timeout));
  };
  for (const char* rank : {"peer_rank", "dst_rank"})
    window.def("signal", signal, ReleaseGil(), py::arg(rank), py::arg("async_op"), no_hints(),
               no_timeout(),
               R"(Sends one signal to `peer_rank`, for its wait_signal().

When the peer sees the signal, it also sees all data that this rank put to it before.)");
  window.def(
      "signal",
      [](TorchCommWindow& self, Arg<uint64_t> signal_disp, Arg<uint64_t> signal_val,
         Arg<int> dst_rank, Arg<bool> async_op, Arg<Hints> hints,
         std::optional<TimeoutArg> timeout) {
        return self.signal_slot(
            signal_disp.get({"signal", "signal_disp"}), signal_val.get({"signal", "signal_val"}),
            dst_rank.get({"signal", "dst_rank"}), async_op.get({"signal", "async_op"}),
            options_of<SignalOptions>("signal", hints, timeout));
      },
      ReleaseGil(), py::arg("signal_disp"), py::arg("signal_val"), py::arg("dst_rank"),
      py::arg("async_op"), no_hints(), no_timeout(),
      R"(Older form: stores `signal_val` in slot `signal_disp` of `dst_rank`.

When the peer sees the value, it also sees all data that this rank put to it before.)");
  window.def(
      "wait_signal",
      [](TorchCommWindow& self, Arg<int> peer_rank, Arg<bool> async_op, Arg<Hints> hints,
         std::optional<TimeoutArg> timeout) {
        return self.wait_signal(peer_rank.get({"wait_signal", "peer_rank"}),
                                async_op.get({"wait_signal", "async_op"}),
                                options_of<WaitSignalOptions>("wait_signal", hints, timeout));
      },
      ReleaseGil(), py::arg("peer_rank"), py::arg("async_op"), no_hints(), no_timeout(),
      R"(Waits for one signal of `peer_rank` and consumes it.

Raises:
    CommTimeout: no signal arrived in time; the communicator has ended.
    PeerFailed: that rank has exited, or has closed the communicator.
    InvalidArgument: on `ctran` for CPU tensors: the window was closed meanwhile; the communicator still works.)");
  window.def(
      "wait_signal",
      [](TorchCommWindow& self, Arg<uint64_t> signal_disp, Arg<uint64_t> signal_val,
         Arg<SignalCmpOp> cmp_op, Arg<bool> async_op, Arg<Hints> hints,
         std::optional<TimeoutArg> timeout) {
        return self.wait_slot(signal_disp.get({"wait_signal", "signal_disp"}),
                              signal_val.get({"wait_signal", "signal_val"}),
                              cmp_op.get({"wait_signal", "cmp_op"}),
                              async_op.get({"wait_signal", "async_op"}),
                              options_of<WaitSignalOptions>("wait_signal", hints, timeout));
      },
      ReleaseGil(), py::arg("signal_disp"), py::arg("signal_val"), py::arg("cmp_op"),
      py::arg("async_op"), no_hints(), no_timeout(),
      R"(Older form: waits until slot `signal_disp` of this rank compares true with `signal_val`.

The slot is the left operand of the comparison; its value is not changed.)");
}

void bind_views(WindowClass& window) {
  window
      .def(
          "map_remote_tensor",
          [](TorchCommWindow& self, Arg<int> rank) {
            return self.map_remote_tensor(rank.get({"map_remote_tensor", "rank"}));
          },
          ReleaseGil(), py::arg("rank"),
          R"(A view of the registered tensor of `rank`: reads and writes access the memory of that rank.

The view has the dtype and shape of that rank's tensor; for this rank it is the registered tensor. Data that were
written before a signal of that rank are visible after wait_signal(). Valid until tensor_deregister().

Raises:
    Unsupported: get_attr(rank) returns SEPARATE.)")
      .def(
          "get_tensor", [](const TorchCommWindow& self) { return self.get_tensor(); },
          "The registered tensor; None if there is none, or if the window does not own it "
          "(owning=False).")
      .def(
          "get_tensor",
          [](TorchCommWindow& self, Arg<int> rank, std::vector<Arg<int64_t>> sizes,
             at::ScalarType dtype, Arg<int64_t> offset) {
            std::vector<int64_t> lengths;
            lengths.reserve(sizes.size());
            for (auto& size : sizes) lengths.push_back(size.get({"get_tensor", "sizes"}));
            return self.get_remote_tensor(rank.get({"get_tensor", "rank"}), lengths, dtype,
                                          offset.get({"get_tensor", "offset"}));
          },
          ReleaseGil(), py::arg("rank"), py::arg("sizes"), py::arg("dtype"), py::arg("offset"),
          R"(Older form: a view of the memory of `rank`, from `offset` elements of `dtype` after its beginning.

Raises:
    OutOfRange: the view exceeds the window.
    Unsupported: get_attr(rank) returns SEPARATE.)")
      .def(
          "get_attr",
          [](TorchCommWindow& self, Arg<int> peer_rank) {
            return self.get_attr(peer_rank.get({"get_attr", "peer_rank"}));
          },
          ReleaseGil(), py::arg("peer_rank"),
          "How this rank accesses the window of `peer_rank`: a TorchCommWindowAttr.")
      .def("get_size", &TorchCommWindow::get_size,
           "Bytes registered on this rank; 0 if no tensor is registered.")
      .def("get_device", &TorchCommWindow::getDevice, "The torch.device of the memory.")
      .def_property_readonly("dtype", &TorchCommWindow::getDtype,
                             "torch.dtype of the registered tensor; float32 if there is none.")
      .def_property_readonly("shape", &TorchCommWindow::getShape,
                             "list[int]: shape of the registered tensor; empty if there is none.")
      .def_property_readonly("device", &TorchCommWindow::getDevice,
                             "torch.device of the registered tensor.");
}

void bind_device(WindowClass& window) {
  window
      .def(
          "get_device_window",
          [](TorchCommWindow& self, Arg<int> signals, Arg<int> counters, Arg<int> barriers) {
            constexpr const char* kMethod = "get_device_window";
            return self.get_device_window(signals.get({kMethod, "signal_count"}),
                                          counters.get({kMethod, "counter_count"}),
                                          barriers.get({kMethod, "barrier_count"}));
          },
          ReleaseGil(), py::arg("signal_count") = -1, py::arg("counter_count") = -1,
          py::arg("barrier_count") = 1,
          R"(Address of a handle for kernels, in this rank's device memory. The first call creates it.

The handle is a torchcomms::device::TorchCommDeviceWindow (torchcomms/device/window.hpp), valid until
tensor_deregister(). Not collective.

Args:
    signal_count, counter_count, barrier_count: -1 for the maximum.
Raises:
    InvalidArgument: a count is below -1, or no tensor is registered.
    OutOfRange: a count exceeds the maximum.
    Unsupported: the window is not in device memory, or kernels cannot access it.)")
      .def(
          "register_local_buffer", &TorchCommWindow::register_local_buffer, ReleaseGil(),
          py::arg("tensor"),
          R"(Address of a handle of `tensor` as a source of puts by kernels. Its memory is kept alive.

Raises:
    InvalidArgument: get_device_window() was not called, or the tensor is on another device.
    ResourceExhausted: 512 buffers are registered already.
    Unsupported: as get_device_window().)")
      .def(
          "deregister_local_buffer",
          [](TorchCommWindow& self, Arg<int64_t> handle) {
            self.deregister_local_buffer(handle.get({"deregister_local_buffer", "handle"}));
          },
          ReleaseGil(), py::arg("handle"),
          "Undoes register_local_buffer(). Raises InvalidArgument for any other number.")
      .def(
          "get_nvlink_address",
          [](TorchCommWindow& self, Arg<int> peer, Arg<uint64_t> offset) {
            constexpr const char* kMethod = "get_nvlink_address";
            return self.get_nvlink_address(peer.get({kMethod, "peer"}),
                                           offset.get({kMethod, "offset"}));
          },
          ReleaseGil(), py::arg("peer"), py::arg("offset") = 0,
          R"(Device address of the memory of `peer`, `offset` bytes after its beginning.

0 if kernels cannot access it. Raises OutOfRange beyond the window, Unsupported as get_device_window().)")
      .def(
          "get_multimem_address",
          [](TorchCommWindow& self, Arg<uint64_t> offset) {
            return self.get_multimem_address(offset.get({"get_multimem_address", "offset"}));
          },
          ReleaseGil(), py::arg("offset") = 0,
          "Device address of the multicast memory of all ranks; 0: windows have no multicast.");
}

void bind_copies(WindowClass& window) {
  window.def("__copy__", [](py::object self) { return self; })
      .def(
          "__deepcopy__",
          [](const py::object& self, const py::dict& memo) {
            auto& original = self.cast<TorchCommWindow&>();
            std::shared_ptr<TorchCommWindow> clone;
            {
              ScopedGilRelease released;
              clone = original.clone();
            }
            const auto remember = [&memo](const py::object& from, const py::object& to) {
              memo[py::int_(reinterpret_cast<uintptr_t>(from.ptr()))] = to;
            };
            const auto copy = py::cast(clone);
            remember(self, copy);
            if (const auto tensor = original.get_tensor())
              remember(py::cast(*tensor), py::cast(*clone->get_tensor()));
            return copy;
          },
          py::arg("memo"));
  def_repr(window);
}

}  // namespace

void bind_window(py::module_& module) {
  py::enum_<TorchCommWinAccessType>(module, "TorchCommWinAccessType",
                                    "How a peer's window is accessed.")
      .value("WIN_ACCESS_TYPE_UNIFIED", TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED)
      .value("WIN_ACCESS_TYPE_SEPARATE", TorchCommWinAccessType::WIN_ACCESS_TYPE_SEPARATE);
  py::enum_<SignalCmpOp>(module, "SignalCmpOp", "Comparison of the older window signals.")
      .value("EQ", SignalCmpOp::EQ)
      .value("GE", SignalCmpOp::GE)
      .value("LE", SignalCmpOp::LE);
  py::class_<TorchCommWindowAttr, std::shared_ptr<TorchCommWindowAttr>> attr(
      module, "TorchCommWindowAttr", "The properties of a window of one peer.");
  attr.def(py::init<>())
      .def_readwrite(
          "access_type", &TorchCommWindowAttr::access_type,
          "UNIFIED: also by loads and stores; SEPARATE: only by operations of the window.");
  def_repr(attr, [](const TorchCommWindowAttr& self) {
    const bool unified = self.access_type == TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
    return bracketed("TorchCommWindowAttr", unified ? "UNIFIED" : "SEPARATE");
  });
  WindowClass window(module, "TorchCommWindow", graph_metaclass(),
                     R"(Memory of this rank that peer ranks write one-sidedly.

Created by TorchComm.new_window(), with memory from tensor_register(), or by TorchComm.window_allocate(). Keeps the
communicator alive. Operations have no hooks. An operation that fails ends the communicator. An operation without a
timeout of its own has the communicator's timeout.)");
  def_no_constructor(window, "TorchComm.new_window() and TorchComm.window_allocate() make one");
  window
      .def(
          "tensor_register",
          [](TorchCommWindow& self, const TensorArg& operand, bool owning) {
            self.tensor_register(operand.tensor, owning);
          },
          ReleaseGil(), py::arg("tensor"), py::arg("owning") = true,
          R"(Makes `tensor` this rank's part of the window. Collective; sizes and dtypes may differ.

Args:
    tensor: contiguous. If it is in shared memory (torch's share_memory_()), the ranks of this host map it.
    owning: False does not keep it alive: it must live until tensor_deregister().
Raises:
    InvalidArgument: a tensor is registered already, or `tensor` is invalid. Nothing was sent.)")
      .def("tensor_deregister", &TorchCommWindow::tensor_deregister, ReleaseGil(),
           "Ends the registration. Collective: returns when no rank writes to this rank's part any "
           "more. Views of peer ranks' parts become invalid. Raises InvalidArgument if no tensor "
           "is registered.");
  bind_put(window);
  bind_signals(window);
  bind_views(window);
  bind_device(window);
  bind_copies(window);
}

}  // namespace torch::comms::bindings
