#pragma once

#include <utility>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// The environment variables that one launcher sets.
struct LauncherVariables {
  const char* name;
  // Accepted values of TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD; empty: all.
  std::vector<const char*> methods;
  const char* rank;
  std::vector<const char*> sizes;  // the first variable that is set counts
  const char* local_rank;
  const char* local_size;        // "" if the launcher sets none
  std::vector<const char*> job;  // the values of all variables that are set, joined, are the job id
};

// Returns: the known launchers, in the order in which query_ranksize() tries them.
TC_API const std::vector<LauncherVariables>& launchers();

// Finds the rank and size of this process in the variables of its launcher. Each call reads the
// environment again.
// Returns: {rank, size}.
// Throws: CommError(kInvalidArgument) with the variables that were tried, or with the variable and
// its text.
TC_API std::pair<int, int> query_ranksize();

}  // namespace torch::comms
