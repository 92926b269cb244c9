#include "interop/window_wrapper.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW
#include <algorithm>
#include <limits>

#include <torchcomms/base/error.hpp>

namespace torch::comms {
namespace {

// Converts a rank to int. Values that are no valid rank stay invalid.
int narrow(int64_t rank) {
  using Limits = std::numeric_limits<int>;
  return static_cast<int>(std::clamp<int64_t>(rank, Limits::min(), Limits::max()));
}

c10::intrusive_ptr<c10d::Work> wrapped(WorkPtr work) {
  return c10::make_intrusive<WorkWrapper>(std::vector{std::move(work)}, std::vector<at::Tensor>{},
                                          c10d::OpType::UNKNOWN);
}

}  // namespace

WindowWrapper::WorkPtr WindowWrapper::put(const at::Tensor& tensor, int64_t rank,
                                          int64_t offset_nelems, bool async_op,
                                          const c10d::PutOptions& options) {
  if (offset_nelems < 0)
    throw CommError(
        Errc::kInvalidArgument,
        "target_offset_nelems is " + std::to_string(offset_nelems) + "; it must not be negative",
        {.op = "put"});
  return wrapped(window_->put(tensor, narrow(rank), static_cast<size_t>(offset_nelems), async_op,
                              translated<PutOptions>(options)));
}

WindowWrapper::WorkPtr WindowWrapper::signal(int64_t rank, bool async_op,
                                             const c10d::SignalOptions& options) {
  return wrapped(window_->signal(narrow(rank), async_op, translated<SignalOptions>(options)));
}

WindowWrapper::WorkPtr WindowWrapper::wait_signal(int64_t rank, bool async_op,
                                                  const c10d::WaitSignalOptions& options) {
  return wrapped(
      window_->wait_signal(narrow(rank), async_op, translated<WaitSignalOptions>(options)));
}

at::Tensor WindowWrapper::map_remote_tensor(int64_t rank) {
  return window_->map_remote_tensor(narrow(rank));
}

c10d::WindowAttr WindowWrapper::get_attr(int64_t rank) {
  const auto attr = window_->get_attr(narrow(rank));
  const bool unified = attr->access_type == TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
  return {unified ? c10d::WindowAccessType::UNIFIED : c10d::WindowAccessType::SEPARATE};
}

c10::intrusive_ptr<c10d::Window> BackendWrapper::new_window(
    const std::optional<at::Tensor>& tensor) {
  auto self = c10::intrusive_ptr<BackendWrapper>::unsafe_reclaim_from_nonowning(this);
  return c10::make_intrusive<WindowWrapper>(std::move(self), comm_->new_window(tensor));
}

}  // namespace torch::comms
#endif
