#pragma once

#include <memory>

#include "ctran/team/device_team.hpp"
#include "vendor/vendor_library.hpp"

// A team as a communication library: what a backend over such libraries needs of one, with NCCL's
// interface. Messages in groups, and the life of a communicator; collectives are
// Team::run_loop()'s.
namespace torch::comms::ctran {

// Its row, of code instead of a file. It works on host memory where the kernels do
// (KernelLibrary::is_for_host()).
extern const nccl::Vendor kTeamLibrary;

// A communicator of it, which shares the team. CommAbort and CommDestroy end it. Without a team it
// has a life, and messages of a rank 0 to itself.
nccl::abi::Comm open_team(std::shared_ptr<DeviceTeam> team,
                          std::shared_ptr<const gpu::Runtime> runtime);

}  // namespace torch::comms::ctran
