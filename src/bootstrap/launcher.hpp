#pragma once

#include <functional>
#include <optional>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::bootstrap {

// Reads one variable: base::env_text in production, a map in tests.
using EnvLookup = std::function<std::optional<std::string>(const std::string&)>;

// Who this process is, and who said so.
struct LaunchInfo {
  int rank = 0;
  int size = 1;
  std::string source;             // "torchrun", "OpenOperation MPI", ...
  std::string evidence;           // "RANK=0, WORLD_SIZE=4"
  std::optional<int> local_rank;  // among the ranks of this host
  std::optional<int> local_size;
  std::string job;  // the launcher's id of this job, equal on all ranks; empty where it gives none
};

// "torchrun (RANK=0, WORLD_SIZE=4)".
TC_API std::string describe(const LaunchInfo& launch);

// Rank and size from the first launcher whose variables hold a rank >= 0 and a size > 0:
//   TORCHCOMM_RANK and TORCHCOMM_SIZE, OpenOperation MPI, PMI, PALS, torchrun, Slurm.
// TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD (auto, mpi, pals, torchrun or slurm, in any case)
// narrows that; any other text leaves TORCHCOMM_RANK and TORCHCOMM_SIZE alone. Pure. Throws
// CommError(kInvalidArgument): nothing found (lists what was looked at), text that is no number,
// rank >= size.
TC_API LaunchInfo discover_launch(const EnvLookup& lookup);

// The same for this process, from its environment.
TC_API LaunchInfo discover();

// Of launchers alone: the job of a process that TORCHCOMM_RANK and TORCHCOMM_SIZE may give a place
// in a part of it, as torch.distributed does for its groups. nullopt where no launcher says.
TC_API std::optional<LaunchInfo> discover_job(const EnvLookup& lookup);
TC_API std::optional<LaunchInfo> discover_job();

}  // namespace torch::comms::bootstrap
