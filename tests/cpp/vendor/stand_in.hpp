#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "vendor/vendor_library.hpp"

namespace torch::comms::nccl {

inline std::string stand_in(const std::string& file) { return TC_TEST_STAND_IN_DIR "/" + file; }

// A test over the stand-in library (tests/standin), whose plan of faults and whose variables end
// with the test.
class StandInTest : public testing::Test {
 protected:
  void TearDown() override {
    plan("");
    for (const auto* vendor : {&kNccl, &kNcclx, &kRccl, &kRcclx, &kOneCcl})
      ::unsetenv(vendor->library_variable);
  }

  static VendorLibrary load(const Vendor& vendor, const std::string& file = "libstand_in_nccl.so") {
    ::setenv(vendor.library_variable, stand_in(file).c_str(), 1);
    return VendorLibrary::load(vendor);
  }

  // See tests/standin/plan.hpp.
  static void plan(const std::string& text, const std::string& file = "libstand_in_nccl.so") {
    if (ask<int(const char*)>("plan", file)(text.c_str()) != 0)
      throw std::runtime_error("no plan: " + text);
  }
  // What the stand-in of this process holds.
  static int registrations() { return ask<int()>("registrations")(); }
  static int allocations() { return ask<int()>("allocations")(); }
  // The windows of a communicator; -1 when it is gone.
  static int windows(int64_t address) { return ask<int(int64_t)>("windows")(address); }
  // The name that a communicator was given.
  static std::string title(int64_t address) { return ask<const char*(int64_t)>("title")(address); }

 private:
  template <class Function>
  static Function* ask(const char* what, const std::string& file = "libstand_in_nccl.so") {
    void* library = ::dlopen(stand_in(file).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    std::string symbol = "torchcomms_standin_";
    symbol += what;
    void* found = ::dlsym(library, symbol.c_str());
    if (found == nullptr) throw std::runtime_error(::dlerror());
    return reinterpret_cast<Function*>(found);
  }
};

}  // namespace torch::comms::nccl
