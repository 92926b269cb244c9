#include "core/rendezvous/master_store.hpp"

#include "base/os/env.hpp"
#include "core/rendezvous/tcp_probe.hpp"
#include "core/rendezvous/tcp_store.hpp"

namespace torch::comms {
namespace {

std::string key_prefix_of(const bootstrap::LaunchInfo& launch, bool served_by_launcher) {
  std::string scope = "torchcomms";
  if (!launch.job.empty()) scope += "/job " + launch.job;
  if (served_by_launcher)
    scope += "/attempt " + base::env_text("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return scope;
}

}  // namespace

MasterStore open_master_store(const bootstrap::LaunchInfo& launch,
                              std::chrono::milliseconds timeout, bootstrap::Deadline deadline,
                              const Context& context) {
  const auto master = bootstrap::find_master_address(base::env_text, launch);
  const bool by_launcher = env_to_value<bool>("TORCHELASTIC_USE_AGENT_STORE", false);
  MasterStore found{.store = {},
                    .master = master,
                    .key_prefix = key_prefix_of(launch, by_launcher),
                    .is_served_by_rank0 = !by_launcher};
  if (by_launcher || launch.rank != 0) {
    found.store = join_store(master.host, master.port, timeout, deadline, context);
    return found;
  }
  if (master.is_inferred && !is_own_address(master.host))
    throw CommError(Errc::kInvalidArgument,
                    "MASTER_ADDR is unset, and " + master.source + " gives " + master.host +
                        ", but this is rank 0 and its host has " + own_address(master.host) +
                        ". Set MASTER_ADDR to rank 0's host, the same on all ranks",
                    context);
  found.store = serve_store(master.port, timeout, deadline, context).store;
  return found;
}

std::string check_master_address(const bootstrap::MasterAddress& master) {
  if (is_own_address(master.host)) return {};
  return master.source + "=" + master.host + " is not an address of rank 0's host (which has " +
         own_address(master.host) +
         "): if peers cannot reach rank 0 there, set MASTER_ADDR to its host";
}

}  // namespace torch::comms
