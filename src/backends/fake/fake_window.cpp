#include "backends/fake/fake_window.hpp"

#include <ATen/ops/zeros.h>
#include <torchcomms/base/error.hpp>

#include "backends/fake/fake_backend.hpp"

namespace torch::comms {

std::shared_ptr<TorchCommWindow> TorchCommFake::new_window(
    const std::optional<at::Tensor>& tensor) {
  auto window = std::make_shared<FakeWindow>();
  if (tensor) window->tensor_register(*tensor, /*owning=*/true);
  return window;
}

std::shared_ptr<TorchCommWindow> TorchCommFake::window_allocate(size_t size_bytes, bool cpu_buf,
                                                                size_t) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(cpu_buf ? at::kCPU : device_);
  return new_window(at::zeros({static_cast<int64_t>(size_bytes)}, options));
}

void FakeWindow::tensor_register(const at::Tensor& tensor, bool owning) {
  registered_ = tensor;
  if (owning) tensor_ = tensor;
  dtype_ = tensor.scalar_type();
  shape_ = tensor.sizes().vec();
  device_ = tensor.device();
  size_bytes_ = tensor.nbytes();
}

void FakeWindow::tensor_deregister() { *this = FakeWindow(); }

std::shared_ptr<TorchCommWindow> FakeWindow::clone() {
  auto copy = std::make_shared<FakeWindow>();
  if (registered_.defined()) copy->tensor_register(registered_.clone(), /*owning=*/true);
  return copy;
}

WorkPtr FakeWindow::put(const at::Tensor& tensor, int, size_t target_offset_nelems, bool,
                        const PutOptions&) {
  const size_t unit = tensor.element_size(), bytes = tensor.nbytes();
  if (target_offset_nelems > size_bytes_ / unit ||
      bytes > size_bytes_ - target_offset_nelems * unit)
    throw CommError(Errc::kOutOfRange,
                    std::to_string(tensor.numel()) + " elements at offset " +
                        std::to_string(target_offset_nelems) + " do not fit: the window has " +
                        std::to_string(size_bytes_) + " bytes",
                    {.op = "put"});
  return completedWork();
}

std::shared_ptr<TorchCommWindowAttr> FakeWindow::get_attr(int) {
  return std::make_shared<TorchCommWindowAttr>();  // UNIFIED
}

at::Tensor FakeWindow::get_remote_tensor(int, const std::vector<int64_t>& sizes,
                                         at::ScalarType dtype, int64_t offset_nelems) {
  int64_t numel = 1;
  for (const auto size : sizes) numel *= size;
  const auto flat = registered_.flatten().view(dtype);
  if (offset_nelems > flat.numel() || numel > flat.numel() - offset_nelems)
    throw CommError(Errc::kOutOfRange,
                    std::to_string(numel) + " elements at offset " + std::to_string(offset_nelems) +
                        " do not fit: the window has " + std::to_string(flat.numel()) +
                        " of that dtype",
                    {.op = "get_tensor"});
  return flat.narrow(0, offset_nelems, numel).view(sizes);
}

}  // namespace torch::comms
