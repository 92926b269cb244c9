#include "backends/ctran/shared_tensor.hpp"

#include <memory>

#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include "core/comm/operand_checks.hpp"
#include "ctran/window/window.hpp"

namespace torch::comms::ctran {

at::Tensor make_shared_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  const PlainDispatchGuard plain;
  const auto elements = static_cast<uint64_t>(c10::multiply_integers(sizes));
  auto block = std::make_shared<SharedMemoryBlock>(elements * c10::elementSize(dtype));
  const auto options = at::TensorOptions().dtype(dtype).device(at::kCPU);
  return at::from_blob(block->bytes().data(), sizes, [block](void*) {}, options);
}

}  // namespace torch::comms::ctran
