// Every public header, by the name and by the older path, in one program outside the project's
// rooms.
#include <comms/torchcomms/TorchComm.hpp>
#include <comms/torchcomms/TorchCommBackend.hpp>
#include <comms/torchcomms/TorchCommBatch.hpp>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <comms/torchcomms/TorchCommHooks.hpp>
#include <comms/torchcomms/TorchCommOptions.hpp>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchCommWindow.hpp>
#include <comms/torchcomms/TorchCommsHealthCheck.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <comms/torchcomms/hooks/clog/ClogHook.hpp>
#include <comms/torchcomms/hooks/common/OpNameHelper.hpp>
#include <comms/torchcomms/hooks/fr/FlightRecorder.hpp>
#include <comms/torchcomms/hooks/fr/FlightRecorderHook.hpp>
#include <comms/torchcomms/hooks/nan_check/NanCheckHook.hpp>
#include <comms/torchcomms/utils/StoreManager.hpp>
#include <comms/torchcomms/utils/Utils.hpp>

#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>

namespace torch::comms {
namespace {

TEST(PublicHeaders, OffersTheHelpersOfTheContract) {
  EXPECT_TRUE(string_to_bool("Yes"));
  EXPECT_EQ(env_to_value<int>("TC_TEST_SURELY_UNSET", 7), 7);
  const PreHookArgs args = Finalize{};
  EXPECT_EQ(opToString(getOpName(args)), "finalize");
  EXPECT_EQ(kDefaultTimeout, std::chrono::seconds(600));
  EXPECT_EQ(kNoTimeout.count(), 0);
}

TEST(PublicHeaders, OffersTheObserversToProgramsInCpp) {
  EXPECT_EQ(fr::FlightRecorderHook(4, true).size(), 0U);
  EXPECT_EQ(fr::FlightRecorder(4).dump_json().substr(0, 11), R"({"version":)");
  EXPECT_FALSE(NanCheckHook().isEnabled());
  EXPECT_THROW(ClogHook("/dev/null/at/all", {}), CommError);
  EXPECT_FALSE(TorchCommsHealthCheck::get().isTimedOut());
}

}  // namespace
}  // namespace torch::comms
