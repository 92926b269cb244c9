#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nccl/communicator.hpp"

namespace torch::comms::nccl {

// Memory of this rank that the library has as a window, of the same size on every rank.
struct OpenWindow {
  abi::Window handle = nullptr;
  char* begin = nullptr;
  size_t size_bytes = 0;
  c10::Storage memory;  // that it is in; empty: somebody else keeps it
  // By rank: where the tensor lies in the window.
  struct Part {
    uint64_t offset_bytes = 0, size_bytes = 0;
  };
  std::vector<Part> parts;
  // See signal_ways.hpp.
  std::vector<std::shared_ptr<Communicator>> ways;
  int own_signals = 0;  // of this rank to itself, that it has not waited for

  bool has(const char* data, size_t bytes) const noexcept {
    return data >= begin && data + bytes <= begin + size_bytes;
  }
};

// The windows of a communicator: those that users have open, and one that puts from elsewhere go
// through. One thread at a time.
struct OpenWindows {
  std::vector<std::shared_ptr<OpenWindow>> all;
  std::shared_ptr<OpenWindow> staging;  // made with the first; one of all

  // The library knows the memory.
  bool know(const char* data, size_t bytes) const noexcept;
  // Collective: all ranks have done with it.
  void close(Communicator& communicator, const std::shared_ptr<OpenWindow>& window,
             const WaitOptions& wait);
  // The same of all, where the communicator is about to be closed, and takes their ways along.
  void clear(Communicator& communicator, const WaitOptions& wait);
};

}  // namespace torch::comms::nccl
