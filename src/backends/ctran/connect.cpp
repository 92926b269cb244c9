#include "backends/ctran/connect.hpp"

#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include <torchcomms/base/env.hpp>
#include <torchcomms/base/error.hpp>

#include "backends/ctran/ctran_options.hpp"
#include "bootstrap/address_exchange/blob_exchange.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::ctran {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kJobInfoKey = "job";  // the store key of rank 0's job information

// The values that rank 0 decides for all ranks.
struct CtranJobInfo {
  transport::Secret secret;
  std::string tuning;  // as serialize_tuning() writes it
};

std::string make_job_info(const TuningFile& tuning_file, const std::string& gpu) {
  const auto secret = transport::random_secret();
  std::string text(secret.size(), '\0');
  std::memcpy(text.data(), secret.data(), secret.size());
  return text + serialize_tuning(tuning_file, gpu);
}

CtranJobInfo broadcast_job_info(StoreKeyValue& store, const bootstrap::BlobExchangeParams& self,
                                const TuningFile& tuning_file, const std::string& gpu) {
  if (self.rank == 0) store.set(kJobInfoKey, make_job_info(tuning_file, gpu));
  const std::string text =
      bootstrap::read_peer_key(store, self, kJobInfoKey, self.deadline.remaining());
  CtranJobInfo job;
  const size_t secret_bytes = job.secret.size();
  if (text.size() <= secret_bytes)
    throw CommError(Errc::kMismatch, "protocol error: rank 0's job record is truncated (" +
                                         std::to_string(text.size()) +
                                         " bytes). All ranks must run the same torchcomms version");
  std::memcpy(job.secret.data(), text.data(), secret_bytes);
  job.tuning = text.substr(secret_bytes);
  return job;
}

// Returns: the topology facts of the most oversubscribed host; the defaults if every rank there has
// a core, because the number of cores does not matter then.
TopologyFacts facts_of(const transport::CoreSharing& densest) {
  const int cores = densest.cores.count();
  if (densest.ranks <= cores) return {};
  return {.local_ranks = densest.ranks, .cores = cores};
}

class PhaseTimer {
 public:
  explicit PhaseTimer(std::vector<TorchCommBackend::InitPhase>& phases) : phases_(phases) {}
  void done(const char* name) {
    const auto now = Clock::now();
    const std::chrono::duration<double, std::milli> took = now - begin_;
    phases_.push_back({name, took.count()});
    begin_ = now;
  }

 private:
  std::vector<TorchCommBackend::InitPhase>& phases_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

ConnectedLinks connect_links(const Rendezvous& rendezvous, const CommOptions& options,
                             const std::string& gpu,
                             std::vector<TorchCommBackend::InitPhase>& phases) {
  PhaseTimer timer(phases);
  StoreKeyValue store(rendezvous.store, rendezvous.deadline, {});
  bootstrap::BlobExchangeParams self{.key_scope = "addresses",
                                     .name = {},
                                     .rank = rendezvous.rank,
                                     .size = rendezvous.size,
                                     .blob = {},
                                     .timeout = rendezvous.timeout,
                                     .deadline = rendezvous.deadline,
                                     .interrupt_check = check_interrupt};
  bool exchange_started = false;
  try {
    auto inputs = std::make_shared<SelectionInputs>();
    inputs->link_policy = parse_link_policy(options.hints);
    inputs->host_id = parse_host_id(options.hints);
    self.interface = parse_interface(options.hints);
    const LinkContextOptions link_options{
        .links = inputs->link_policy,
        .interface = self.interface,
        .host = inputs->host_id,
        .single_copy = parse_single_copy(options.hints),
        .move_threads = env_to_value("TORCHCOMM_CTRAN_MOVE_THREADS", true),
        .chooser = [inputs](const ProblemInfo& info) { return choose_algorithm(*inputs, info); },
        .interrupt_check = check_interrupt};
    const CtranJobInfo job = broadcast_job_info(store, self, parse_tuning_file(options.hints), gpu);
    const auto exchange = [&](std::string own_blob) {
      exchange_started = true;
      self.blob = std::move(own_blob);
      self.secret = job.secret;
      auto received = bootstrap::exchange_blobs(store, self);
      try {
        inputs->shared_tuning = parse_shared_tuning(job.tuning);
      } catch (const CommError&) {
        finish_failed_rendezvous(store, rendezvous);
        throw;
      }
      timer.done("exchange");
      return std::move(received.blobs);
    };
    ConnectedLinks connected{
        .link_context = LinkContext::create(rendezvous.rank, rendezvous.size, job.secret, exchange,
                                            link_options),
        .selection_inputs = inputs};
    inputs->topology = facts_of(connected.link_context->most_oversubscribed_host());
    timer.done("open links");
    return connected;
  } catch (const CommError& e) {
    // Peers that wait for this rank receive the error.
    if (!exchange_started)
      bootstrap::decline_exchange(store, self, e,
                                  rendezvous.rank == 0 ? std::vector<std::string>{kJobInfoKey}
                                                       : std::vector<std::string>());
    throw;
  }
}

}  // namespace torch::comms::ctran
