#pragma once

#include <cstdint>
#include <string>

#include "bootstrap/launcher.hpp"

namespace torch::comms::bootstrap {

// The address at which rank 0 serves the rendezvous store if the program passes none.
struct MasterAddress {
  std::string host;
  uint16_t port = 0;
  std::string source;  // "MASTER_ADDR", "the first host of SLURM_STEP_NODELIST": for error texts
  bool is_inferred = false;  // from the job's variables: rank 0 must check that `host` is its own
};

// Finds the address from MASTER_ADDR and MASTER_PORT; a missing one is inferred from the job. The
// host is 127.0.0.1 if all ranks share one, else Slurm's first host, else the host of Open MPI's
// mpirun. The port is 20000 + hash(job id) % 10000, below the ephemeral ports of Linux. This is a
// pure function; every rank of a job gets the same result.
// Throws: CommError(kInvalidArgument) that names what to set, also if MASTER_ADDR is neither a host
// name nor an address.
MasterAddress find_master_address(const EnvLookup& lookup, const LaunchInfo& launch);

}  // namespace torch::comms::bootstrap
