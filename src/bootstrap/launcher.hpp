#pragma once

#include <functional>
#include <optional>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::bootstrap {

// Returns the value of one environment variable; nothing if unset. discover() reads the environment
// of the process; tests read a map.
using EnvLookup = std::function<std::optional<std::string>(const std::string&)>;

// Rank and size of this process, and the launcher (or the split) that set them.
struct LaunchInfo {
  int rank = 0;
  int size = 1;
  std::string source;             // "torchrun", "Open MPI", ...
  std::string evidence;           // "RANK=0, WORLD_SIZE=4"
  std::optional<int> local_rank;  // among the ranks of this host
  std::optional<int> local_size;
  std::string job;  // the launcher's job id, equal on all ranks; empty: none
};

// Returns a text such as "torchrun (RANK=0, WORLD_SIZE=4)".
TC_API std::string describe(const LaunchInfo& launch);

// Reads rank and size from the first launcher whose variables hold a rank >= 0 and a size > 0:
//   TORCHCOMM_RANK and TORCHCOMM_SIZE, Open MPI, PMI, PALS, torchrun, Slurm.
// TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD (auto, mpi, pals, torchrun or slurm, in upper or lower
// case) selects launchers; the default is auto. With any other text only TORCHCOMM_RANK and
// TORCHCOMM_SIZE are read. The result depends only on `lookup`.
// Throws: CommError(kInvalidArgument) if no rank and size are found (the text lists the variables),
// if a value is no whole number, or if rank >= size.
TC_API LaunchInfo discover_launch(const EnvLookup& lookup);

// Reads rank and size from the environment of this process; see discover_launch().
TC_API LaunchInfo discover();

// Reads rank and size as discover_launch() does, but not from TORCHCOMM_RANK and TORCHCOMM_SIZE.
// Those two may describe a part of the job: the package sets them for groups of torch.distributed.
// Returns: nullopt if no selected launcher has set its variables.
// Throws: CommError(kInvalidArgument) if a value is no whole number, or if rank >= size.
TC_API std::optional<LaunchInfo> discover_job(const EnvLookup& lookup);
TC_API std::optional<LaunchInfo> discover_job();

}  // namespace torch::comms::bootstrap
