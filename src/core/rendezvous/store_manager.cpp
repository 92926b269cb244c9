#include <torchcomms/store_manager.hpp>

#include <utility>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torchcomms/options.hpp>

#include "bootstrap/launcher.hpp"
#include "core/rendezvous/master_store.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Never destroyed, because stores in static storage may outlive it otherwise.
const StorePtr& store_of_this_process() {
  static const auto* store = new StorePtr(c10::make_intrusive<c10d::HashStore>());
  return *store;
}

StorePtr master_store(std::chrono::milliseconds timeout) {
  const auto launch = bootstrap::discover();
  if (launch.size == 1) {
    store_of_this_process()->setTimeout(timeout);
    return store_of_this_process();
  }
  const Context context{.op = "createPrefixStore", .comm = "", .rank = launch.rank};
  auto found = open_master_store(launch, timeout, bootstrap::Deadline(timeout), context);
  return c10::make_intrusive<c10d::PrefixStore>(found.key_prefix, std::move(found.store));
}

void check(const char* op, std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0)
    throw CommError(Errc::kInvalidArgument,
                    "timeout is " + bootstrap::format_duration(timeout) + "; it must be positive",
                    {.op = op});
}

}  // namespace

StorePtr createPrefixStore(const std::string& prefix, std::chrono::milliseconds timeout) {
  check("createPrefixStore", timeout);
  try {
    return c10::make_intrusive<c10d::PrefixStore>(prefix, master_store(timeout));
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

StorePtr dupPrefixStore(const std::string& prefix, const StorePtr& bootstrap_store,
                        std::chrono::milliseconds timeout) {
  check("dupPrefixStore", timeout);
  if (!bootstrap_store)
    throw CommError(Errc::kInvalidArgument, "bootstrap_store is null", {.op = "dupPrefixStore"});
  CommOptions options;
  options.store = bootstrap_store;
  options.timeout = timeout;
  return c10::make_intrusive<c10d::PrefixStore>(prefix, rendezvous("dup " + prefix, options).store);
}

}  // namespace torch::comms
