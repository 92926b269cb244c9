#include "core/rendezvous/rendezvous.hpp"

#include <unistd.h>

#include <exception>
#include <optional>
#include <utility>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/os/env.hpp"
#include "base/os/host.hpp"
#include "base/os/log.hpp"
#include "base/os/secret.hpp"
#include "bootstrap/arrival_barrier.hpp"
#include "core/options/hint_table.hpp"
#include "core/rendezvous/master_store.hpp"
#include "core/rendezvous/private_store.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/rendezvous/tcp_probe.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using bootstrap::format_duration;
using bootstrap::NamedTimeout;
using std::chrono::milliseconds;
using Clock = Deadline::Clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr const char* kStoreVariable = "TORCHCOMM_STORE_TIMEOUT_SECONDS";
constexpr const char* kInitVariable = "TORCHCOMM_INIT_TIMEOUT_SECONDS";

// How long the address of a lost store may refuse connections. Rank 0 closes the store of an
// earlier communicator when that one is ready, even if another rank already uses it for the next
// one.
constexpr milliseconds kReconnectTimeout{1500};

milliseconds usable(milliseconds timeout) {
  return timeout.count() > 0 ? timeout : kDefaultTimeout;
}

NamedTimeout timeout_of(const std::string& variable, const CommOptions& options,
                        const std::string& op = "new_comm") {
  if (const auto limit = base::env_seconds(variable)) return {*limit, variable};
  return {usable(options.timeout),
          "timeout= of " + op + " or TORCHCOMM_TIMEOUT_SECONDS, or set " + variable};
}

// The key of the id with which the ranks connect, below the communicator's keys.
constexpr const char* kConnectIdKey = "word";

bool is_set(const std::string& variable) { return base::env_text(variable).has_value(); }

using ConflictCheck = std::function<std::optional<std::string>()>;

// The start-up of one rank.
class RendezvousRun {
 public:
  RendezvousRun(const bootstrap::LaunchInfo& launch, const std::string& name,
                const CommOptions& options, std::string_view backend,
                std::vector<TorchCommBackend::InitPhase> phases, Clock::time_point begin,
                ConflictCheck conflict_check, const std::string& op,
                const OverlappedConnect& overlapped_connect)
      : launch_(launch),
        name_(name),
        backend_(backend),
        options_(options),
        context_{.op = op, .comm = name, .rank = launch.rank},
        store_timeout_(timeout_of(kStoreVariable, options, op)),
        init_timeout_(timeout_of(kInitVariable, options, op)),
        begin_(begin),
        deadline_(init_timeout_.duration, begin),
        phases_(std::move(phases)),
        conflict_check_(std::move(conflict_check)),
        overlapped_connect_(overlapped_connect) {}

  Rendezvous run() {
    if (launch_.size == 1 && !options_.store) return make_result(single_rank_store());
    phase("store", store_timeout_,
          [this] { open_store(Deadline(store_timeout_.duration, begin_)); });
    // If one of the variables is set, each part has its own deadline; otherwise all share
    // options.timeout.
    if (is_set(kStoreVariable) || is_set(kInitVariable))
      deadline_ = Deadline(init_timeout_.duration);
    const auto keys = phase("arrive", init_timeout_, [this] { return wait_for_ranks(); });
    if (overlapped_connect_.start && launch_.size > 1)
      phase("begin", init_timeout_, [&] { start_overlapped_connect(keys + kConnectIdKey); });
    if (options_.store && options_.getHint<bool>(hint::kPersistentStore.name, false))
      return make_result(c10::make_intrusive<c10d::PrefixStore>(keys + "store", connection_));
    if (launch_.size == 1) return make_result(single_rank_store());
    auto own =
        phase("private store", init_timeout_, [&] { return private_store(keys + "private"); });
    phase("leave", init_timeout_,
          [&] { leave_rendezvous_store(own.store, {keys + "private", keys + kConnectIdKey}); });
    auto result = make_result(c10::make_intrusive<c10d::PrefixStore>("use", std::move(own.store)));
    result.address = own.address;
    result.is_store_private = true;
    return result;
  }

 private:
  // Runs a phase, records its duration, and completes its errors.
  template <class Part>
  auto phase(const char* name, const NamedTimeout& limit, Part part) -> decltype(part()) {
    const auto begin = Clock::now();
    const auto done = [&] {
      const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
      phases_.push_back({name, took.count()});
    };
    try {
      if constexpr (std::is_void_v<decltype(part())>) {
        part();
        done();
      } else {
        auto result = part();
        done();
        return result;
      }
    } catch (const CommError& e) {
      if (prepare_error_) std::rethrow_exception(prepare_error_);
      fail(name, limit, e);
    }
  }

  void start_overlapped_connect(const std::string& key) {
    std::string connect_id;
    if (launch_.rank == 0) {
      connect_id = overlapped_connect_.make_id();
      bootstrap_store_->set(key, connect_id);
    } else {
      connect_id = bootstrap_store_->get(key, deadline_.remaining());
    }
    if (!connect_id.empty()) overlapped_connect_.start(launch_.rank, launch_.size, connect_id);
  }

  [[noreturn]] void fail(const std::string& phase, const NamedTimeout& limit,
                         const CommError& e) const {
    std::string why = "start-up phase '" + phase + "': " + e.why();
    if (e.code() == Errc::kTimeout && e.why().find(limit.setting) == std::string::npos)
      why += ". The timeout is " + format_duration(limit.duration) +
             "; to allow more time, raise " + limit.setting;
    if (e.code() == Errc::kTimeout || e.code() == Errc::kMismatch)
      why += ". Rank and size come from " + describe(launch_);
    if (e.code() == Errc::kTimeout && launch_.source == "Slurm")
      why += "; Slurm also sets them in a job's shell, where srun must start the program";
    if (e.code() == Errc::kTimeout && launch_.rank == 0 && master_)
      if (const auto address_problem = check_master_address(*master_); !address_problem.empty())
        why += ". " + address_problem;
    auto context = context_.blaming(e.context());
    context.limit = limit.duration;
    throw CommError(e.code(), why, context);
  }

  // Opens the store in which the ranks find each other.
  void open_store(Deadline deadline) {
    if (options_.store) {
      connection_ = share_store(options_.store, deadline, context_);
      connection_->setTimeout(usable(options_.timeout));
      key_prefix_ = "torchcomms";
      return;
    }
    auto found = open_master_store(launch_, usable(options_.timeout), deadline, context_);
    connection_ = std::move(found.store);
    key_prefix_ = found.key_prefix;
    master_ = found.master;
    address_ = "tcp://" + found.master.host + ":" + std::to_string(found.master.port);
    may_reconnect_ = found.is_served_by_rank0 && launch_.rank != 0;
  }

  // Waits for all ranks and returns the prefix of this communicator's keys.
  std::string wait_for_ranks() {
    while (true) {
      try {
        bootstrap_store_.emplace(connection_, deadline_, context_, address_);
        const auto arrival = bootstrap::wait_for_all_ranks(*bootstrap_store_, arrival_params());
        identity_ = arrival.identity;
        return arrival.key_prefix;
      } catch (const CommError& e) {
        // A result of the ranks is final. A lost connection, which has no failed peer, may come
        // back.
        if (e.code() != Errc::kPeerFailed || e.context().peer >= 0 || !may_reconnect_ ||
            deadline_.has_passed())
          throw;
        reconnect(e);
      }
    }
  }

  // A store that accepts connections has come back. Its answer may take longer: it waits for a name
  // server at every connection.
  void reconnect(const CommError& lost) {
    release_store();
    try {
      wait_until_reachable(master_->host, master_->port,
                           Deadline(std::min(kReconnectTimeout, deadline_.remaining())), context_);
    } catch (const CommError& e) {
      throw CommError(Errc::kPeerFailed,
                      lost.why() + ", and the connection did not come back within " +
                          format_duration(kReconnectTimeout) + " (" + e.why() + ")");
    }
    open_store(deadline_);
  }

  bootstrap::ArrivalBarrierParams arrival_params() {
    return {.key_scope = key_prefix_,
            .name = name_,
            .rank = launch_.rank,
            .size = launch_.size,
            .process_description = format_process(),
            .backend = backend_,
            .timeout = init_timeout_,
            .deadline = deadline_,
            .report = [](const std::string& text) { base::log(base::LogLevel::kWarning, text); },
            .conflict_check = conflict_check_,
            .prepare = make_prepare()};
  }

  std::function<void()> make_prepare() {
    if (!overlapped_connect_.prepare || launch_.size == 1) return {};
    return [this] {
      prepare_error_ = nullptr;
      try {
        overlapped_connect_.prepare(launch_.rank);
      } catch (const Interrupted&) {
        throw;
      } catch (const std::exception& e) {
        prepare_error_ = std::current_exception();
        const auto* const known = dynamic_cast<const CommError*>(&e);
        throw CommError(known ? known->code() : Errc::kSystem, known ? known->why() : e.what());
      }
    };
  }

  PrivateStore private_store(const std::string& key) {
    const auto timeout = usable(options_.timeout);
    const auto scope = "comm/" + std::to_string(identity_);
    if (launch_.rank != 0)
      return join_private_store(*bootstrap_store_, key, scope, timeout, deadline_, context_);
    return publish_private_store(*bootstrap_store_, key, scope, address_hint(), timeout, deadline_,
                                 context_);
  }

  StorePtr single_rank_store() const {
    auto store = c10::make_intrusive<c10d::HashStore>();
    store->setTimeout(usable(options_.timeout));
    return store;
  }

  // Returns: a name by which peers may know this host.
  std::string address_hint() const {
    if (const auto address = base::env_text("MASTER_ADDR")) return *address;
    if (master_) return master_->host;
    constexpr std::string_view kTcp = "tcp://";
    const auto given = store_address(options_.store);
    if (!given.starts_with(kTcp)) return {};
    return given.substr(kTcp.size(), given.rfind(':') - kTcp.size());
  }

  // Releases the store in which the ranks met. All ranks release it before any rank returns,
  // because the caller may open its port again.
  void leave_rendezvous_store(const StorePtr& own, const std::vector<std::string>& used_keys) {
    StoreKeyValue store(own, deadline_, context_);
    switch_to_private_store(store, launch_.rank, launch_.size, init_timeout_, deadline_, [&] {
      if (launch_.rank == 0)
        for (const auto& key : used_keys) bootstrap_store_->remove(key);
      release_store();
    });
  }

  void release_store() {
    bootstrap_store_.reset();
    connection_.reset();
  }

  Rendezvous make_result(StorePtr store) {
    auto address = store_address(store);
    return {.rank = launch_.rank,
            .size = launch_.size,
            .source = describe(launch_),
            .store = std::move(store),
            .phases = std::move(phases_),
            .address = std::move(address),
            .timeout = init_timeout_,
            .deadline = deadline_,
            .op = context_.op,
            .identity = identity_ == 0 ? base::random_number() : identity_};
  }

  const bootstrap::LaunchInfo& launch_;
  const std::string& name_;
  const std::string backend_;
  const CommOptions& options_;
  const Context context_;
  const NamedTimeout store_timeout_, init_timeout_;
  const Clock::time_point begin_;
  Deadline deadline_;
  std::vector<TorchCommBackend::InitPhase> phases_;
  const ConflictCheck conflict_check_;
  const OverlappedConnect& overlapped_connect_;

  StorePtr connection_;                           // to the store in which the ranks find each other
  std::optional<StoreKeyValue> bootstrap_store_;  // that store as a KeyValueStore
  std::string key_prefix_;
  std::string address_;  // equal on all ranks; empty for a given store
  std::optional<bootstrap::MasterAddress> master_;
  bool may_reconnect_ = false;
  uint64_t identity_ = 0;             // 0: a single rank
  std::exception_ptr prepare_error_;  // why this rank cannot take part
};

Rendezvous start(const bootstrap::LaunchInfo& launch, const std::string& name,
                 const CommOptions& options, std::string_view backend,
                 std::vector<TorchCommBackend::InitPhase> phases, Clock::time_point begin,
                 ConflictCheck conflict_check, const std::string& op,
                 const OverlappedConnect& overlapped_connect) {
  try {
    return RendezvousRun(launch, name, options, backend, std::move(phases), begin,
                         std::move(conflict_check), op, overlapped_connect)
        .run();
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

bootstrap::LaunchInfo discover(const std::string& name) {
  try {
    return bootstrap::discover();
  } catch (const CommError& e) {
    throw CommError(e.code(), "start-up phase 'discover': " + e.why(),
                    {.op = "new_comm", .comm = name});
  }
}

}  // namespace

bootstrap::NamedTimeout init_timeout(const CommOptions& options) {
  return timeout_of(kInitVariable, options);
}

std::string format_process() {
  return "process " + std::to_string(::getpid()) + " on host " + base::host_name();
}

Rendezvous rendezvous(const std::string& comm_name, const CommOptions& options,
                      std::string_view backend, const OverlappedConnect& overlapped_connect) {
  const auto begin = Clock::now();
  const auto launch = discover(comm_name);
  const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
  return start(launch, comm_name, options, backend, {{"discover", took.count()}}, begin, {},
               "new_comm", overlapped_connect);
}

Rendezvous rendezvous(const bootstrap::LaunchInfo& launch, const std::string& comm_name,
                      const CommOptions& options, std::string_view backend,
                      std::function<std::optional<std::string>()> conflict_check,
                      const std::string& op, const OverlappedConnect& overlapped_connect) {
  return start(launch, comm_name, options, backend, {}, Clock::now(), std::move(conflict_check), op,
               overlapped_connect);
}

void finish_failed_rendezvous(StoreKeyValue& store, const Rendezvous& result) {
  try {
    if (store.add("left", 1) == result.size) store.set("gone", "yes");
    if (result.rank == 0) store.get("gone", result.deadline.remaining());
  } catch (const CommError& e) {
    base::log(base::LogLevel::kDebug,
              std::string("a rank could not leave a failed start-up together with its peers: ") +
                  e.what());
  }
}

}  // namespace torch::comms
