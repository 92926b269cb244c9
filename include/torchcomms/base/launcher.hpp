#pragma once

#include <utility>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// The variables that one launcher sets.
struct LauncherVariables {
  const char* name;
  std::vector<const char*> methods;  // of TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD; empty: all
  const char* rank;
  std::vector<const char*> sizes;  // the first that is set counts
  const char* local_rank;
  const char* local_size;        // "" where the launcher gives none
  std::vector<const char*> job;  // all that are set, joined, are the job's id
};

// The launchers that are known, in the order in which they are looked at.
TC_API const std::vector<LauncherVariables>& launchers();

// {rank, size} of this process, from the launcher's variables. Reads the environment at each call.
// Throws CommError(kInvalidArgument) naming what was looked at, or the variable and its text.
TC_API std::pair<int, int> query_ranksize();

}  // namespace torch::comms
