#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <torchcomms/window.hpp>

#include "backends/ctran/ctran_backend.hpp"
#include "backends/ctran/session.hpp"
#include "ctran/window/window.hpp"

namespace torch::comms::ctran {

// A window over a tensor. The caller has checked that memory is registered where required, and that
// ranks are in range. This class rejects transfers that do not fit, before anything is sent.
class CtranWindow final : public TorchCommWindow {
 public:
  static constexpr size_t kSlots = 256;

  explicit CtranWindow(std::shared_ptr<TorchCommCtran> comm, size_t slots = kSlots);
  // Allocates memory that all ranks of this host can map, and opens the window on it. Collective.
  void allocate(size_t size_bytes);

  void tensor_register(const at::Tensor& tensor, bool owning) override;
  void tensor_deregister() override;
  std::shared_ptr<TorchCommWindow> clone() override;
  WorkPtr put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems, bool async_op,
              const PutOptions& options) override;
  WorkPtr signal(int peer_rank, bool async_op, const SignalOptions& options) override;
  WorkPtr wait_signal(int peer_rank, bool async_op, const WaitSignalOptions& options) override;
  at::Tensor map_remote_tensor(int rank) override;
  std::shared_ptr<TorchCommWindowAttr> get_attr(int peer_rank) override;

  WorkPtr signal_slot(size_t slot, uint64_t value, int dst_rank, bool async_op,
                      const SignalOptions& options) override;
  WorkPtr wait_slot(size_t slot, uint64_t value, SignalCmpOp compare, bool async_op,
                    const WaitSignalOptions& options) override;
  at::Tensor get_remote_tensor(int rank, const std::vector<int64_t>& sizes, at::ScalarType dtype,
                               int64_t offset_nelems) override;

 private:
  // Begins an operation of the communicator.
  // Throws: CommError: as TorchCommCtran::begin_call(); kStaleGeneration if reconfigure() has
  // closed the links over which the window was opened.
  CallInfo begin_call(std::string_view method, const OperationOptions& options) const;
  // Returns: true if reconfigure() has closed those links. Then no peer can answer, and only ranks
  // that have mapped the memory can write to it.
  bool is_stale() const;
  void open(std::string_view method, const at::Tensor& tensor, bool owning);
  WorkPtr submit(const CallInfo& now, RmaOperation operation, bool async_op,
                 std::vector<c10::Storage> memory);
  const PeerWindows::PeerWindow& peer_window(int rank) const;
  // Throws: CommError(kUnsupported), without context.
  void require_on_window_device(const at::Tensor& tensor) const;
  at::Tensor view(std::string_view method, int rank, uint64_t offset_bytes, at::IntArrayRef sizes,
                  at::ScalarType dtype) const;
  Context context(std::string_view method, int peer = -1) const;

  const std::shared_ptr<TorchCommCtran> comm_;
  const size_t slots_;
  std::weak_ptr<const Session> session_;  // the session in which window_ was opened
  std::unique_ptr<Window> window_;        // destroyed before tensor_, whose memory it has opened
};

}  // namespace torch::comms::ctran
