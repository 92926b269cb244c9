#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "backends/nccl/world.hpp"
#include "backends/ncclx/ncclx_backend.hpp"

namespace torch::comms::ncclx {

using nccl::alone;
using nccl::error_of;
using nccl::Program;

inline constexpr const char* kKernels = "TORCHCOMM_KERNELS_LIBRARY";

inline float first(const at::Tensor& tensor) { return tensor.const_data_ptr<float>()[0]; }

// Ranks of backend ncclx as threads, over the stand-in library and the stand-in kernels.
class NcclxTest : public nccl::VendorTest {
 protected:
  void SetUp() override {
    before_ = std::exchange(make_backend, [](const std::string& name) -> Backend {
      return std::make_shared<TorchCommNCCLX>(name);
    });
    ::setenv(nccl::kNcclx.library_variable, nccl::stand_in("libstand_in_nccl.so").c_str(), 1);
    ::setenv(kKernels, nccl::stand_in("libstand_in_kernels.so").c_str(), 1);
  }
  void TearDown() override {
    make_backend = before_;
    kernels_plan("");
    ::unsetenv(nccl::kNcclx.library_variable);
    ::unsetenv(kKernels);
    VendorTest::TearDown();
  }

  void on_ranks(int size, const std::function<void(Program&)>& body, const Hints& hints = {},
                std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    VendorTest::on_ranks(size, body, timeout, "ncclx", hints);
  }

  // See tests/standin/plan.hpp; the call is "ReductionLoop".
  static void kernels_plan(const std::string& text) {
    if (ask<int(const char*)>("plan")(text.c_str()) != 0)
      throw std::runtime_error("no plan: " + text);
  }
  // How many kernels this process has launched.
  static int64_t launches() { return ask<int64_t()>("launches")(); }

  static TorchCommNCCLX& backend_of(const Program& self) {
    return dynamic_cast<TorchCommNCCLX&>(*self.comm->getBackendImpl());
  }
  // How many this rank has.
  static int launches_of(const Program& self) {
    return std::stoi(backend_of(self).comm_dump().at("kernelLaunches"));
  }

 private:
  template <class Function>
  static Function* ask(const char* what) {
    void* library = ::dlopen(nccl::stand_in("libstand_in_kernels.so").c_str(),
                             RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    void* found = ::dlsym(library, (std::string("torchcomms_standin_kernels_") + what).c_str());
    if (found == nullptr) throw std::runtime_error(::dlerror());
    return reinterpret_cast<Function*>(found);
  }
  Backend (*before_)(const std::string&) = nullptr;
};

}  // namespace torch::comms::ncclx
