#pragma once

#include <memory>

#include "ctran/team/device_team.hpp"
#include "vendor/vendor_library.hpp"

// A team as a communication library with NCCL's interface, for a backend over such libraries. It
// has messages in groups, and creates and destroys communicators. DeviceTeam::launch() runs
// collectives.
namespace torch::comms::ctran {

// The vendor table's row of this library, which is code instead of a file. It works on host memory
// if the kernels do (KernelLibrary::is_for_host()).
extern const nccl::Vendor kTeamLibrary;

// Creates a communicator that shares the team. CommAbort and CommDestroy destroy it. Without a team
// it only has messages of rank 0 to itself.
nccl::abi::Comm open_team(std::shared_ptr<DeviceTeam> team,
                          std::shared_ptr<const gpu::Runtime> runtime);

}  // namespace torch::comms::ctran
