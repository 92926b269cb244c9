#include <torchcomms/window.hpp>

#include <torchcomms/base/error.hpp>

// The defaults of the optional window methods, for backends without them.
namespace torch::comms {
namespace {

[[noreturn]] void lacks(const char* method) {
  throw CommError(Errc::kUnsupported, "the windows of this backend have no such part",
                  {.op = method});
}

}  // namespace

WorkPtr TorchCommWindow::signal_slot(size_t, uint64_t, int, bool, const SignalOptions&) {
  lacks("signal");
}
WorkPtr TorchCommWindow::wait_slot(size_t, uint64_t, SignalCmpOp, bool, const WaitSignalOptions&) {
  lacks("wait_signal");
}
at::Tensor TorchCommWindow::get_remote_tensor(int, const std::vector<int64_t>&, at::ScalarType,
                                              int64_t) {
  lacks("get_tensor");
}
int64_t TorchCommWindow::get_device_window(int, int, int) { lacks("get_device_window"); }
int64_t TorchCommWindow::register_local_buffer(const at::Tensor&) {
  lacks("register_local_buffer");
}
void TorchCommWindow::deregister_local_buffer(int64_t) { lacks("deregister_local_buffer"); }
int64_t TorchCommWindow::get_nvlink_address(int, uint64_t) { lacks("get_nvlink_address"); }
int64_t TorchCommWindow::get_multimem_address(uint64_t) { lacks("get_multimem_address"); }

}  // namespace torch::comms
