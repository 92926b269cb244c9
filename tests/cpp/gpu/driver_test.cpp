#include "gpu/driver.hpp"

#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>

#include <cstring>

#include "gpu/cpu_driver.hpp"

namespace torch::comms::gpu {
namespace {

const Runtime& cpu = Runtime::cpu();

TEST(Driver, OfHostMemoryHasOneDeviceThatReachesItself) {
  const auto driver = Driver::of(cpu);
  EXPECT_EQ(driver->device_of(driver->uuid_of(0)), 0);
  EXPECT_EQ(driver->device_of(DriverUuid{}), std::nullopt);
  EXPECT_TRUE(driver->can_access_peer(0, 0));
  EXPECT_EQ(driver->unmappable_reason(0), "");
}

TEST(Driver, NamesTheCallThatFailedAndItsWords) {
  try {
    Driver::of(cpu)->uuid_of(3);
    FAIL();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kVendor);
    EXPECT_EQ(e.why(), "cpu driver, DeviceGetUuid: invalid device ordinal (101)");
  }
}

TEST(MappableMemory, IsZeroedAndTheSameForAllWhoAdoptIt) {
  const auto driver = Driver::of(cpu);
  auto own = std::make_unique<ShareableMemory>(ShareableMemory::create(driver, cpu, 0, 5000));
  ASSERT_EQ(own->size_bytes() % 4096, 0u);
  for (size_t i = 0; i < own->size_bytes(); ++i)
    ASSERT_EQ(static_cast<char*>(own->at())[i], 0) << "byte " << i;
  const auto other =
      ShareableMemory::import(driver, 0, own->export_descriptor(), own->size_bytes());
  EXPECT_NE(other.at(), own->at());
  std::memcpy(own->at(), "written", 8);
  EXPECT_STREQ(static_cast<char*>(other.at()), "written");
  own.reset();
  EXPECT_STREQ(static_cast<char*>(other.at()), "written");
}

TEST(MappableMemory, IsNotAdoptedWithMoreBytesThanItHas) {
  const auto driver = Driver::of(cpu);
  const auto own = ShareableMemory::create(driver, cpu, 0, 4096);
  EXPECT_THROW(ShareableMemory::import(driver, 0, own.export_descriptor(), 2 * own.size_bytes()),
               CommError);
}

TEST(MappableMemory, ReleasesWhatItTookWhenALaterStepFails) {
  static int handles = 0, addresses = 0;
  auto table = cpu_driver_table();
  table.MemCreate = [](AllocationHandle* handle, size_t size_bytes, const MemoryProperties* wanted,
                       unsigned long long flags) {
    ++handles;
    return cpu_driver_table().MemCreate(handle, size_bytes, wanted, flags);
  };
  table.MemRelease = [](AllocationHandle handle) {
    --handles;
    return cpu_driver_table().MemRelease(handle);
  };
  table.MemAddressReserve = [](DevicePointer* at, size_t size_bytes, size_t alignment,
                               DevicePointer wanted, unsigned long long flags) {
    ++addresses;
    return cpu_driver_table().MemAddressReserve(at, size_bytes, alignment, wanted, flags);
  };
  table.MemAddressFree = [](DevicePointer at, size_t size_bytes) {
    --addresses;
    return cpu_driver_table().MemAddressFree(at, size_bytes);
  };
  table.MemSetAccess = [](DevicePointer, size_t, const MemoryAccess*, size_t) { return 1; };
  const auto driver = std::make_shared<const Driver>("test", table);
  EXPECT_THROW(ShareableMemory::create(driver, cpu, 0, 4096), CommError);
  EXPECT_EQ(handles, 0);
  EXPECT_EQ(addresses, 0);
}

TEST(MappableMemory, DestroysItsStreamWhenTheFillFails) {
  static int streams = 0;
  auto table = cpu.table();
  table.StreamCreateWithPriority = [](NativeStream* stream, unsigned flags, int priority) {
    ++streams;
    return cpu.table().StreamCreateWithPriority(stream, flags, priority);
  };
  table.StreamDestroy = [](NativeStream stream) {
    --streams;
    return cpu.table().StreamDestroy(stream);
  };
  table.StreamSynchronize = [](NativeStream stream) {
    cpu.table().StreamSynchronize(stream);
    return 1;
  };
  const Runtime runtime("test", "", table);
  EXPECT_THROW(ShareableMemory::create(Driver::of(cpu), runtime, 0, 4096), CommError);
  EXPECT_EQ(streams, 0);
}

}  // namespace
}  // namespace torch::comms::gpu
