#include "sim/bootstrap.hpp"

#include <stdexcept>
#include <string>

#include "bootstrap/ranks.hpp"
#include "sim/bootstrap_simulation.hpp"

namespace torch::comms::sim {
namespace {

void check(const BootstrapRun& run) {
  const auto require = [](bool right, const std::string& what) {
    if (!right) throw std::invalid_argument(what);
  };
  require(run.ranks >= 1 && run.ranks <= bootstrap::kMaxRanks,
          "the number of ranks must be from 1 to " + std::to_string(bootstrap::kMaxRanks));
  require(run.kill >= -1 && run.kill < run.ranks, "rank " + std::to_string(run.kill) +
                                                      " cannot be killed: the run has " +
                                                      std::to_string(run.ranks) + " ranks");
  require(run.kill_at_us >= 0 && run.stagger_us >= 0, "times must not be negative");
  require(run.blob_bytes >= 0 && run.blob_bytes <= static_cast<int64_t>(bootstrap::kMaxBlobBytes),
          "the size of a blob must be from 0 to " + std::to_string(bootstrap::kMaxBlobBytes) +
              " bytes");
}

}  // namespace

BootstrapResult simulate(const BootstrapRun& run, const SimInterruptCheck& interrupt_check) {
  validate(run.network);
  check(run);
  return BootstrapSimulation(run, interrupt_check).result();
}

}  // namespace torch::comms::sim
