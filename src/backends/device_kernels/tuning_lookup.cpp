#include "backends/device_kernels/tuning_lookup.hpp"

#include <atomic>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"
#include "gpu/driver.hpp"

namespace torch::comms::ctran {

std::string gpu_model_name(const gpu::Runtime& runtime, int device) {
  try {
    return to_word(gpu::Driver::of(runtime)->model_of(device));
  } catch (const CommError& e) {
    base::log(base::LogLevel::kDebug, "cannot read the GPU's model: " + e.why());
    return {};
  }
}

MeasuredRows find_tuning_rows(const SharedTuning& shared_tuning, int ranks, bool warns) {
  static std::atomic_flag has_warned;
  const auto& all = shared_tuning.tuning.kernels;
  auto rows = rows_for(all, shared_tuning.gpu, ranks);
  if (warns && rows.empty() && !all.empty() && !has_warned.test_and_set())
    base::log(base::LogLevel::kWarning,
              shared_tuning.tuning.source + " has kernels measured on " +
                  format_measured_gpus(all) + ", none on " +
                  (shared_tuning.gpu.empty() ? "this GPU" : shared_tuning.gpu) + " with " +
                  std::to_string(ranks) +
                  " ranks: the built-in table is used (torchcomms tune --device cuda)");
  return MeasuredRows(std::move(rows));
}

}  // namespace torch::comms::ctran
