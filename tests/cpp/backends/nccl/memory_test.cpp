// Memory that the library is told of, and memory of the library's own.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "backends/nccl/world.hpp"

namespace torch::comms::nccl {
namespace {

class VendorMemory : public VendorTest {};

TEST_F(VendorMemory, IsRegisteredOnceAndTakenBackAsOftenAsItWasGiven) {
  on_ranks(1, [&](Program& self) {
    const auto tensor = at::zeros({16});
    self.comm->tensor_register(tensor);
    EXPECT_EQ(registrations(), 1);
    self.comm->tensor_register(tensor);
    self.comm->tensor_register(tensor.slice(0, 0, 8));  // another range
    EXPECT_EQ(registrations(), 2);
    self.comm->tensor_deregister(tensor);
    EXPECT_EQ(registrations(), 2);
    self.comm->tensor_deregister(tensor);
    EXPECT_EQ(registrations(), 1);
    const auto error = error_of([&] { self.comm->tensor_deregister(tensor); });
    EXPECT_EQ(error.code(), Errc::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("64 bytes is not registered"), std::string::npos);
    self.comm->tensor_register(at::zeros({0}));  // nothing to tell
    EXPECT_EQ(registrations(), 1);
    self.comm->finalize();
    EXPECT_EQ(registrations(), 0);
  });
}

TEST_F(VendorMemory, LivesWhileItIsRegistered) {
  on_ranks(1, [&](Program& self) {
    c10::weak_intrusive_ptr<c10::StorageImpl> watched{c10::intrusive_ptr<c10::StorageImpl>()};
    {
      const auto tensor = at::zeros({16});
      watched = tensor.storage().getWeakStorageImpl();
      self.comm->tensor_register(tensor);
    }
    EXPECT_FALSE(watched.expired());
    self.comm->finalize();
    self.comm.reset();
    EXPECT_TRUE(watched.expired());
  });
}

TEST_F(VendorMemory, ThatIsNotOnePieceIsRefused) {
  on_ranks(1, [&](Program& self) {
    const auto every_other = at::zeros({4, 4}).slice(1, 0, 4, 2);
    EXPECT_EQ(error_of([&] { self.comm->tensor_register(every_other); }).code(),
              Errc::kInvalidArgument);
    self.comm->tensor_register(at::zeros({4, 4}).t());  // which is, in another order
    self.comm->finalize();
    EXPECT_EQ(error_of([&] { self.comm->tensor_register(every_other); }).code(), Errc::kFinalized);
  });
}

TEST_F(VendorMemory, AFailureOfTheLibraryIsItsOwnErrorAndTheCommunicatorGoesOn) {
  plan("fail=CommRegister:1");
  on_ranks(1, [&](Program& self) {
    const auto tensor = at::zeros({16});
    EXPECT_EQ(error_of([&] { self.comm->tensor_register(tensor); }).code(), Errc::kVendor);
    self.comm->tensor_register(tensor);
    EXPECT_EQ(registrations(), 1);
    self.comm->barrier(false);
    self.synchronize();
    self.comm->finalize();
  });
}

TEST_F(VendorMemory, AnOldLibraryNamesTheVersionsFoundAndNeeded) {
  ::setenv(kNccl.library_variable, stand_in("libstand_in_nccl_old.so").c_str(), 1);
  on_ranks(1, [&](Program& self) {
    const auto error = error_of([&] { self.comm->tensor_register(at::zeros({4})); });
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    for (const char* word : {"tensor_register()", "2.19.0", "2.10.3"})
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    self.comm->finalize();
  });
  const auto error = error_of([] { TorchCommNCCL("nccl").make_allocator(); });
  EXPECT_EQ(error.code(), Errc::kUnsupported);
  for (const char* word : {"get_mem_allocator", "2.19.0", "2.10.3"})
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
}

TEST_F(VendorMemory, OfTheLibraryIsAllocatedAndGivenBack) {
  const auto allocator = TorchCommNCCL("nccl").make_allocator();
  const int before = allocations();  // of communicators that earlier tests could not end
  {
    const auto memory = allocator->allocate(1000);
    ASSERT_NE(memory.get(), nullptr);
    EXPECT_TRUE(memory.device().is_cpu());
    static_cast<char*>(memory.get())[999] = 1;
    EXPECT_EQ(allocations(), before + 1);
    EXPECT_EQ(allocator->allocate(0).get(), nullptr);
  }
  EXPECT_EQ(allocations(), before);
  plan("fail=MemAlloc:1");
  EXPECT_EQ(error_of([&] { allocator->allocate(1000); }).code(), Errc::kResourceExhausted);
}

TEST_F(VendorMemory, TheLibraryKnowsCommunicatorsByTheirNames) {
  on_ranks(1, [&](Program& self) {
    const auto address_of = [](TorchComm& comm) {
      return static_cast<NcclApiBackend&>(*comm.getBackendImpl()).communicator_address();
    };
    EXPECT_EQ(title(address_of(*self.comm)), "world");
    CommOptions named;
    named.hints["commName"] = "by hint";
    const auto child = self.comm->split({0}, "child", CommOptions());
    const auto other = self.comm->split({0}, "other", named);
    EXPECT_EQ(title(address_of(*child)), "child");
    EXPECT_EQ(title(address_of(*other)), "by hint");
    for (auto* comm : {child.get(), other.get(), self.comm.get()}) comm->finalize();
  });
}

TEST_F(VendorMemory, FieldsThatAnOldLibraryWouldNotReadAreRefused) {
  const auto make = [](const Hints& hints) {
    auto options = options_with(c10::make_intrusive<c10d::HashStore>());
    for (const auto& [key, value] : hints) options.hints[key] = value;
    const auto backend = make_backend("nccl");
    backend->init(at::kCPU, backends_test::launch(0, 1), "world", options);
    backend->finalize();
  };
  const Hints unset{{"minCTAs", "-2147483648"}, {"netName", "None"}, {"trafficClass", ""}};
  make({{"cga_cluster_size", "2"}, {"nvlinkCentricSched", "1"}, {"commName", "mine"}});
  make(unset);
  ::setenv(kNccl.library_variable, stand_in("libstand_in_nccl_old.so").c_str(), 1);
  make(unset);
  const std::pair<const char*, const char*> rows[] = {
      {"blocking", "2.14.0"},     {"minCTAs", "2.17.0"},  {"netName", "2.17.0"},
      {"trafficClass", "2.26.0"}, {"commName", "2.27.3"}, {"nvlinkCentricSched", "2.28.0"}};
  for (const auto& [field, since] : rows) {
    const auto error = error_of([&] { make({{field, "1"}}); });
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    EXPECT_EQ(error.context().op, "new_comm");
    const auto needs = std::string("hint ") + field + " needs NCCL " + since;
    for (const auto& text : {needs, std::string("is 2.10.3")})
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST_F(VendorMemory, OfTheDeviceIsCountedAroundTheMakingAndWhatIsRegisteredBesides) {
  on_ranks(1, [](Program& self) {
    auto& backend = dynamic_cast<TorchCommNCCL&>(*self.comm->getBackendImpl());
    EXPECT_EQ(backend.memory_usage().at("communicator"), 0u);
    // What the library takes while it connects is seen as soon as it is there.
    std::atomic<bool> is_created{false};
    std::thread library([&] {
      while (!is_created) {
        gpu::cpu_used_bytes() += 4096;
        std::this_thread::yield();
      }
    });
    uint64_t taken = 0;  // until that thread has run between the two looks
    for (int child = 0; child < 100 && taken == 0; ++child) {
      const auto child_comm = self.comm->split({0}, "child", options_with(nullptr));
      const auto& diagnostics =
          dynamic_cast<const BackendDiagnostics&>(*child_comm->getBackendImpl());
      taken = diagnostics.memory_usage().at("communicator");
      child_comm->finalize();
    }
    is_created = true;
    library.join();
    EXPECT_GT(taken, 0u);
    EXPECT_EQ(taken % 4096, 0u);
    gpu::cpu_used_bytes() = 0;
    const auto tensor = at::ones({256});
    self.comm->tensor_register(tensor);
    EXPECT_EQ(backend.memory_usage().at("registered tensors"), 1024u);
    self.comm->tensor_deregister(tensor);
    EXPECT_EQ(backend.memory_usage().at("registered tensors"), 0u);
    self.comm->finalize();
  });
}

}  // namespace
}  // namespace torch::comms::nccl
