#include "backends/gloo/gloo_backend.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/factory.hpp>

#include "backends/gloo/call.hpp"
#include "backends/gloo/group.hpp"
#include "base/fork.hpp"
#include "base/secret.hpp"
#include "core/cpu_backend.hpp"
#include "core/member_handle.hpp"
#include "core/reconfiguration.hpp"
#include "core/rendezvous.hpp"
#include "core/retire.hpp"
#include "core/staging.hpp"

namespace torch::comms {
namespace {

const BackendRegistration registration("gloo", [] { return std::make_shared<TorchCommGloo>(); });

std::string joined_with_commas(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

}  // namespace

TorchCommGloo::TorchCommGloo() : fork_generation_(base::fork_generation()) {}

TorchCommGloo::~TorchCommGloo() {
  if (fork_generation_ != base::fork_generation()) {
    // Gloo's threads are the parent's: nothing of it may be touched here.
    static_cast<void>(group_.release());
    static_cast<void>(store_.release());
    static_cast<void>(reconfiguration_.release());
    return;
  }
  // The caller may hold locks that Gloo's threads want, such as Python's.
  gloo::retire(std::move(group_), /*may_block=*/false);
}

void TorchCommGloo::init(at::Device device, const std::string& name, const CommOptions& options) {
  require_stageable(device, "gloo", name);
  device_ = device;
  start(name, options);
  if (!reconfiguration_) join(rendezvous(name, options_), nullptr, name, {});
}

void TorchCommGloo::init(const bootstrap::Launch& launch, const std::string& name,
                         const CommOptions& options) {
  start(name, options);
  if (!reconfiguration_) join(rendezvous(launch, name, options_), nullptr, name, {});
}

void TorchCommGloo::start(const std::string& name, const CommOptions& options) {
  await_retired();
  name_ = name;
  options_ = options;
  options_.timeout = usable_timeout(options.timeout);
  if (!options.enable_reconfigure) return;
  reconfiguration_ = std::make_unique<Reconfiguration>("gloo", name, options_);
  options_.store.reset();
}

void TorchCommGloo::join(const Rendezvous& met, const gloo::Group* parent, const std::string& name,
                         std::vector<int> ranks) {
  auto member = std::make_shared<const gloo::Member>(
      gloo::Member{.name = name, .rank = met.rank, .size = met.size});
  phases_ = met.phases;
  const gloo::Call call{OpName::split, member, met.limit.duration, true, false};
  group_ = gloo::connect(options_, call, met, parent, phases_);
  for (int rank = 0; parent == nullptr && rank < met.size; ++rank) ranks.push_back(rank);
  ranks_ = std::move(ranks);
  store_ = met.store;
  device_ = staged_device(device_, met.rank, "gloo");
  options_.store.reset();
  if (!reconfiguration_) {
    MemberHandle handle{.backend = "gloo", .rank = met.rank, .identity = base::random_number()};
    handle.meet_at(met.address);
    handle_ = handle.text();
  }
  member_ = std::move(member);
}

void TorchCommGloo::finalize() {
  gloo::retire(std::move(group_), /*may_block=*/true);
  store_.reset();
  if (reconfiguration_) reconfiguration_->close();
}

int TorchCommGloo::getRank() const { return member_ ? member_->rank : -1; }
int TorchCommGloo::getSize() const { return member_ ? member_->size : -1; }
std::string_view TorchCommGloo::getCommName() const {
  return member_ ? std::string_view(member_->name) : std::string_view(name_);
}

Capabilities TorchCommGloo::capabilities() const {
  auto can = staged_capabilities();
  can.reconfigure = true;
  can.any_source = true;
  return can;
}

gloo::Call TorchCommGloo::call(OpName op, bool async_op, const OperationOptions& options) {
  if (!group_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized",
                    {.op = std::string(opToString(op)), .comm = std::string(getCommName())});
  if (reconfiguration_ && reconfiguration_->is_left_out())
    throw CommError(*reconfiguration_->left_out(
        {.op = std::string(opToString(op)), .comm = name_, .rank = getRank()}));
  const bool own = options.timeout.count() > 0;
  gloo::Call call{op, member_, own ? options.timeout : options_.timeout, own, async_op};
  // A split makes connections of its own.
  if (op != OpName::split) try {
      group_->peers->require_open(call);
    } catch (const CommError& e) {
      throw explained(e);
    }
  return call;
}

std::shared_ptr<TorchCommBackend> TorchCommGloo::split(const std::vector<int>& ranks,
                                                       const std::string& name,
                                                       const CommOptions& options) {
  if (ranks.empty()) return nullptr;
  const auto now = call(OpName::split, false, {});
  const auto own = std::find(ranks.begin(), ranks.end(), member_->rank);
  if (own == ranks.end())
    throw CommError(Errc::kInvalidArgument, "this rank is missing from the list", context(now));

  auto child = std::make_shared<TorchCommGloo>();
  child->device_ = device_;
  child->start(name, options);
  child->options_.hints["persistent_store"] = "true";
  // The members alone decide the prefix, so splits that others make meanwhile cannot get in the
  // way; how often these members have split is counted on the store.
  child->options_.store =
      c10::make_intrusive<c10d::PrefixStore>("split/" + joined_with_commas(ranks), store_);
  std::vector<int> global_ranks;
  global_ranks.reserve(ranks.size());
  for (const int rank : ranks) global_ranks.push_back(ranks_[static_cast<size_t>(rank)]);

  const auto child_name =
      name + "_" + std::to_string(*std::min_element(ranks.begin(), ranks.end()));
  bootstrap::Launch launch;
  launch.rank = static_cast<int>(own - ranks.begin());
  launch.size = static_cast<int>(ranks.size());
  launch.source = "split of '" + member_->name + "'";
  launch.evidence = "ranks " + joined_with_commas(ranks);
  child->join(rendezvous(launch, child_name, child->options_), group_.get(), child_name,
              std::move(global_ranks));
  return child;
}

}  // namespace torch::comms
