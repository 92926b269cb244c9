#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "ctran/team/device_team.hpp"
#include "gpu/cpu_runtime.hpp"
#include "transport/nvl/group.hpp"

// Teams over the stand-in's kernels.
namespace torch::comms::ctran::test {

inline const gpu::Runtime& cpu = gpu::Runtime::cpu();
inline constexpr const char* kVariable = "TORCHCOMM_KERNELS_LIBRARY";
inline std::string library(const std::string& file) { return TC_TEST_STAND_IN_DIR "/" + file; }

class KernelsTest : public testing::Test {
 protected:
  void SetUp() override { ::setenv(kVariable, library("libstand_in_kernels.so").c_str(), 1); }
  void TearDown() override { ::unsetenv(kVariable); }
};

// A rank's team and a stream of its own.
struct TeamMember {
  TeamMember(int rank, int size, const transport::nvl::AllGatherStrings& exchange,
             const std::shared_ptr<const gpu::Runtime>& runtime = gpu::Runtime::shared_cpu(),
             DeviceTeam::WorkspaceExtent extent = DeviceTeam::WorkspaceExtent::kFull)
      : rank(rank), size(size), stream(cpu.create_stream(false)) {
    auto result = DeviceTeam::create(rank, size, 0, runtime, "", exchange, extent);
    transport::nvl::test::require(result.team != nullptr, result.unavailable_reason.c_str());
    team = std::move(result.team);
  }
  ~TeamMember() {
    cpu.synchronize(stream);
    cpu.destroy_stream(stream);
  }
  TeamMember(const TeamMember&) = delete;
  TeamMember& operator=(const TeamMember&) = delete;

  const int rank, size;
  const gpu::NativeStream stream;
  std::shared_ptr<DeviceTeam> team;
};

}  // namespace torch::comms::ctran::test
