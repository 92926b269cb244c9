#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "vendor/communicator.hpp"

namespace torch::comms::nccl {

// Memory of this rank that is a window of the library, of the same size on every rank.
struct RegisteredWindow {
  abi::Window handle = nullptr;
  char* begin = nullptr;
  size_t size_bytes = 0;
  c10::Storage memory;  // keeps the memory alive; empty: the caller does
  // By rank: where the rank's tensor lies in the window.
  struct WindowTensorRange {
    uint64_t offset_bytes = 0, size_bytes = 0;
  };
  std::vector<WindowTensorRange> parts;
  // See signal_communicators.hpp.
  std::vector<std::shared_ptr<Communicator>> signal_communicators;
  int pending_self_signals = 0;  // signals of this rank to itself that it has not waited for

  bool contains(const char* data, size_t bytes) const noexcept {
    return data >= begin && data + bytes <= begin + size_bytes;
  }
};

// The windows of a communicator: the windows that users have open, and the bounce window.
//
// Threads: one at a time.
struct WindowRegistry {
  std::vector<std::shared_ptr<RegisteredWindow>> all;
  std::shared_ptr<RegisteredWindow>
      bounce_window;  // created with the first window; an element of `all`

  // True if the memory lies in one of the windows.
  bool contains(const char* data, size_t bytes) const noexcept;
  // Closes a window. Collective; all ranks must have finished using it.
  void close(Communicator& communicator, const std::shared_ptr<RegisteredWindow>& window,
             const WaitOptions& wait);
  // Closes all windows. The communicator must be about to be closed, which closes their signal
  // communicators.
  void clear(Communicator& communicator, const WaitOptions& wait);
};

}  // namespace torch::comms::nccl
