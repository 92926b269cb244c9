#pragma once

#include <cstdint>
#include <string>

#include "bootstrap/launcher.hpp"

namespace torch::comms::bootstrap {

// Where rank 0 serves the rendezvous store when the program passes none.
struct MasterAddress {
  std::string host;
  uint16_t port = 0;
  std::string source;  // "MASTER_ADDR", "the first host of SLURM_STEP_NODELIST": for error texts
  bool is_inferred =
      false;  // found in the job's variables: rank 0 must check that `host` is its own
};

// MASTER_ADDR and MASTER_PORT; what is missing comes from the job. The host: 127.0.0.1 where all
// ranks share one, else Slurm's first host, else the host of OpenOperation MPI's mpirun. The port:
// 20000 + a hash of the job's id modulo 10000, below the ports that Linux hands out. Pure; every
// rank of a job gets the same answer. Throws CommError(kInvalidArgument) naming what to set, also
// for a MASTER_ADDR that is neither a host name nor an address.
MasterAddress find_master_address(const EnvLookup& lookup, const LaunchInfo& launch);

}  // namespace torch::comms::bootstrap
