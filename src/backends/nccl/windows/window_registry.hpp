#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "vendor/communicator.hpp"

namespace torch::comms::nccl {

// Memory of this rank that the library has as a window, of the same size on every rank.
struct RegisteredWindow {
  abi::Window handle = nullptr;
  char* begin = nullptr;
  size_t size_bytes = 0;
  c10::Storage memory;  // that it is in; empty: somebody else keeps it
  // By rank: where the tensor lies in the window.
  struct WindowTensorRange {
    uint64_t offset_bytes = 0, size_bytes = 0;
  };
  std::vector<WindowTensorRange> parts;
  // See signal_ways.hpp.
  std::vector<std::shared_ptr<Communicator>> signal_communicators;
  int pending_self_signals = 0;  // of this rank to itself, that it has not waited for

  bool contains(const char* data, size_t bytes) const noexcept {
    return data >= begin && data + bytes <= begin + size_bytes;
  }
};

// The windows of a communicator: those that users have open, and one that puts from elsewhere go
// through. One thread at a time.
struct WindowRegistry {
  std::vector<std::shared_ptr<RegisteredWindow>> all;
  std::shared_ptr<RegisteredWindow> bounce_window;  // made with the first; one of all

  // The library knows the memory.
  bool contains(const char* data, size_t bytes) const noexcept;
  // Collective: all ranks have done with it.
  void close(Communicator& communicator, const std::shared_ptr<RegisteredWindow>& window,
             const WaitOptions& wait);
  // The same of all, where the communicator is about to be closed, and takes their ways along.
  void clear(Communicator& communicator, const WaitOptions& wait);
};

}  // namespace torch::comms::nccl
