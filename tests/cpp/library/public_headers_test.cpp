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
#include <torchcomms/backend_wrapper.hpp>
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

TEST(PublicHeaders, OptionsOfAWrapperTellHowItsCommunicatorWasMade) {
  using std::chrono::milliseconds;
  EXPECT_EQ(BackendWrapper::Options().default_timeout, std::chrono::seconds(600));
  CommOptions made;
  made.abort_process_on_timeout_or_error = false;
  made.is_high_priority_stream = true;
  made.timeout = milliseconds(7000);
  made.hints = {{"fake::size", "2"}};
  BackendWrapper wrapper(new_comm("fake", at::kCPU, "wrapped", made));
  const auto options = wrapper.getBackendOptions();
  const auto* its = dynamic_cast<const BackendWrapper::Options*>(options.get());
  ASSERT_NE(its, nullptr);
  EXPECT_EQ(its->abort_process_on_timeout_or_error, std::optional(false));
  EXPECT_EQ(its->is_high_priority_stream, std::optional(true));
  EXPECT_EQ(its->store, nullptr);
  EXPECT_EQ(its->hints, made.hints);
  EXPECT_EQ(its->default_timeout, milliseconds(7000));
  wrapper.setTimeout(milliseconds(9));
  EXPECT_EQ(its->default_timeout, milliseconds(9));

  auto of_child = c10::make_intrusive<BackendWrapper::Options>();
  of_child->group_name = "child";
  of_child->is_high_priority_stream = false;
  const auto child = wrapper.split(nullptr, {0, 1}, of_child);
  EXPECT_EQ(dynamic_cast<BackendWrapper&>(*child).getComm()->getOptions().is_high_priority_stream,
            std::optional(false));
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
