#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>

#include <ATen/ops/full.h>

#include "backends/ctran/ctran_backend.hpp"
#include "backends/nccl/world.hpp"

namespace torch::comms::ctran_test {

inline constexpr const char* kKernels = "TORCHCOMM_KERNELS_LIBRARY";

inline at::Tensor filled(float value, int64_t count = 4) { return at::full({count}, value); }

// Backend ctran where kernels carry out what is on the device: the stand-in's, for host memory.
class StandInKernels : public testing::Test {
 protected:
  void SetUp() override { ::setenv(kKernels, nccl::stand_in("libstand_in_kernels.so").c_str(), 1); }
  void TearDown() override { ::unsetenv(kKernels); }

  // `hints_of`: see nccl::run_ranks_of().
  static void on_ranks(int size, const std::function<void(nccl::Program&)>& body,
                       std::chrono::milliseconds timeout = std::chrono::seconds(60),
                       const std::function<Hints(int)>& hints_of = {}) {
    const auto options = nccl::options_with(c10::make_intrusive<c10d::HashStore>(), timeout);
    nccl::run_ranks_of([] { return std::make_shared<TorchCommCtran>(); }, size, body, options,
                       "ctran", hints_of);
  }
};

}  // namespace torch::comms::ctran_test
