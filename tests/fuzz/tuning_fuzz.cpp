// A tuning file that anybody may have written.

#include <torchcomms/base/error.hpp>

#include "ctran/selection/tuning.hpp"
#include "fuzz.hpp"

namespace ctran = torch::comms::ctran;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = torch::comms::fuzz::text_of(data, size);
  try {
    const auto tuning = ctran::parse_tuning(text, "fuzz");
    torch::comms::fuzz::require(text.size() <= ctran::kMaxTuningBytes);
    torch::comms::fuzz::require(tuning.overrides.size() <= ctran::kMaxOverrides);
    torch::comms::fuzz::require(tuning.kernels.size() <= ctran::kMaxOverrides);
    const auto again = ctran::to_text(tuning);
    torch::comms::fuzz::require(ctran::to_text(ctran::parse_tuning(again, "again")) == again);
  } catch (const torch::comms::CommError& error) {
    torch::comms::fuzz::require(!error.why().empty());
  }
  return 0;
}
