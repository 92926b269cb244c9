#include "backends/ncclx/ncclx_backend.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "backends/device_kernels/registered_buffers.hpp"
#include "backends/device_kernels/team_kernels.hpp"
#include "backends/device_kernels/tuning_lookup.hpp"
#include "backends/device_kernels/workspace_policy.hpp"
#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "backends/nccl/streams/tensor_args.hpp"
#include "base/os/log.hpp"
#include "core/options/hint.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "ctran/team/kernel_selection.hpp"
#include "transport/nvl/packed_text.hpp"

namespace torch::comms {

using ctran::KernelPreference;
using ctran::kernels::Collective;
using ctran::kernels::KernelAlgorithm;
using ctran::kernels::KernelCall;

namespace {

// The first character of every value in the store, because some stores treat an empty value as
// absent.
constexpr char kBegin = ':';
constexpr const char* kTuning = "kernels/tuning";

int index_of(const nccl::NcclDevice& device) {
  const auto& at = device.torch_device();
  return at.has_index() ? at.index() : 0;
}

// True for a MIN or MAX of floating point numbers. Kernels propagate a NaN, and NCCL drops it.
bool orders_floats(const KernelCall& call) {
  return ctran::kernels::element_kind_of(call) == ctran::kernels::ElementKind::kFloat &&
         (call.op == ctran::ReduceOpCode::kMin || call.op == ctran::ReduceOpCode::kMax);
}

// Returns: what `rank` has stored under `key`.
std::string get_from_rank(int rank, StoreKeyValue& store, const std::string& key,
                          const Rendezvous& rendezvous, const Context& context) {
  try {
    return store.get(key, rendezvous.deadline.remaining());
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout) throw;
    auto where = context;
    where.peer = rank;
    throw CommError(Errc::kTimeout,
                    "start-up phase 'kernels': rank " + std::to_string(rank) +
                        " did not publish its kernel capabilities within the timeout of " +
                        bootstrap::format_duration(rendezvous.timeout.duration) +
                        "; if the rank is running, raise " + rendezvous.timeout.setting,
                    where);
  }
}

}  // namespace

TorchCommNCCLX::TorchCommNCCLX(std::string backend) : VendorBackend(std::move(backend)) {}

TorchCommNCCLX::~TorchCommNCCLX() { set_dump_visible(false); }

void TorchCommNCCLX::finalize() {
  set_dump_visible(false);
  VendorBackend::finalize();
}

WorkPtr TorchCommNCCLX::reconfigure(const ReconfigureOptions& options) {
  set_dump_visible(false);
  return VendorBackend::reconfigure(options);
}

void TorchCommNCCLX::on_connected() {
  VendorBackend::on_connected();
  set_dump_visible(true);
}

void TorchCommNCCLX::parse_options(CommOptions& options) {
  ncclx::normalize_hints(options);
  kernel_preferences_.fill(ncclx::parse_kernel_preference(options.hints));
  tuning_file_ = ncclx::parse_tuning_file(options.hints);
  batch_invariant_ = is_batch_invariant(options.hints);
  if (batch_invariant_) ncclx::restrict_to_kernels(kernel_preferences_);
  (void)ctran::parse_registered_mode(options.hints);  // throws for an invalid value
  workspace_extent_ = ctran::parse_workspace_extent(options.hints);
}

bool TorchCommNCCLX::prepare(const Rendezvous& rendezvous, const nccl::NcclDevice& device) {
  has_tried_kernels_ = false;
  tracked_segments_ = {};  // registrations ended with the former communicator
  set_kernels(nullptr);
  if (rendezvous.size < 2 || !rendezvous.store) return false;
  const Context context{
      .op = rendezvous.op, .comm = std::string(getCommName()), .rank = rendezvous.rank};
  StoreKeyValue store(rendezvous.store, rendezvous.deadline, context, rendezvous.address);
  if (rendezvous.rank == 0)
    store.set(kTuning,
              ctran::serialize_tuning(tuning_file_,
                                      ctran::gpu_model_name(device.runtime(), index_of(device))));
  const auto tuning_text = get_from_rank(0, store, kTuning, rendezvous, context);
  try {
    shared_tuning_ =
        std::make_shared<const ctran::SharedTuning>(ctran::parse_shared_tuning(tuning_text));
  } catch (const CommError& e) {
    finish_failed_rendezvous(store, rendezvous);
    throw CommError(e.code(), e.why(), context);
  }
  int round = 0;
  connect_kernels(rendezvous.rank, rendezvous.size, device, [&](const std::string& text) {
    const auto key = "kernels/" + std::to_string(round++) + "/";
    store.set(key + std::to_string(rendezvous.rank), kBegin + text);
    std::vector<std::string> all;
    all.reserve(static_cast<size_t>(rendezvous.size));
    for (int rank = 0; rank < rendezvous.size; ++rank)
      all.push_back(
          get_from_rank(rank, store, key + std::to_string(rank), rendezvous, context).substr(1));
    return all;
  });
  return true;
}

void TorchCommNCCLX::connect_kernels(int rank, int size, const nccl::NcclDevice& device,
                                     const transport::nvl::AllGatherStrings& exchange) {
  has_tried_kernels_ = true;  // also if this throws, which aborts the communicator
  const nccl::NcclDevice::DeviceCallGuard scope(device);
  const bool all_by_library =
      std::all_of(kernel_preferences_.begin(), kernel_preferences_.end(),
                  [](const KernelPreference& preference) {
                    return preference.provider == KernelPreference::KernelProvider::kVendor;
                  });
  auto result = ctran::DeviceTeam::create(rank, size, index_of(device), device.shared_runtime(),
                                          all_by_library ? "the library was requested" : "",
                                          exchange, workspace_extent_);
  kernels_unavailable_reason_ = std::move(result.unavailable_reason);
  if (result.team)
    set_kernels(std::make_shared<ctran::TeamKernels>(std::move(result.team)),
                shared_tuning_ ? ctran::find_tuning_rows(*shared_tuning_, size, rank == 0)
                               : ctran::MeasuredRows());
}

// A split has no store, so the ranks exchange data by the library's all_gather, with its timeout
// and failures.
void TorchCommNCCLX::connect_kernels_by_all_gather() {
  set_dump_visible(false);  // until on_connected()
  const auto now = begin_call(OpName::new_window, false, {}, "the first collective");
  connect_kernels(getRank(), getSize(), launch_queue()->device(),
                  [&](const std::string& text) { return all_gather_strings(text, now); });
  on_connected_late();
}

std::string TorchCommNCCLX::set_up_single_rank() {
  set_dump_visible(false);  // until on_connected()
  auto why = KernelBackend::set_up_single_rank();
  set_dump_visible(true);
  return why;
}

std::vector<std::string> TorchCommNCCLX::all_gather_strings(const std::string& text,
                                                            const nccl::NcclCall& now) {
  using namespace transport::nvl;
  const auto own = pack_text(text);
  OperationOptions options;
  if (now.has_own_timeout) options.timeout = now.timeout;
  const auto all = gather_bytes(std::as_bytes(std::span(own)), options);
  return unpack_texts(all.const_data_ptr(), static_cast<size_t>(getSize()));
}

// Segments are registered here and not in the allocator's callback. The callback holds the
// allocator's lock, under which a library call that waits for peers must not run.
void TorchCommNCCLX::before_operation(const nccl::NcclCall& now) {
  const auto& all = ncclx::AllocatorSegments::of_process();
  if (tracked_segments_.is_up_to_date(all)) return;
  auto& registrations = launch_queue()->registrations();
  auto& communicator = launch_queue()->communicator();
  const auto wait = nccl::launch_wait(now);
  const auto update_registration = [&](auto change, const ncclx::AllocatorSegment& segment,
                                       bool is_added) {
    try {
      (registrations.*change)(communicator, {segment.begin, segment.size_bytes}, wait);
      return true;
    } catch (const CommError& e) {
      if (e.code() == Errc::kUnsupported) return false;
      // Operations can run without a registration, but freed memory must not stay registered.
      if (e.code() != Errc::kVendor || !is_added) throw nccl::with_context(e, now);
      if (!std::exchange(has_logged_refusal_, true))
        base::log(base::LogLevel::kWarning,
                  "communicator '" + std::string(getCommName()) +
                      "' continues without registering memory of torch's allocator: " + e.why());
      return true;
    }
  };
  using Change = void (nccl::BufferRegistrations::*)(
      nccl::Communicator&, const nccl::BufferRegistrations::BufferAddressRange&,
      const nccl::WaitOptions&);
  tracked_segments_.update(
      all, getDevice().has_index() ? getDevice().index() : 0,
      [&](const auto& one) {
        return update_registration(Change{&nccl::BufferRegistrations::add}, one, true);
      },
      [&](const auto& one) {
        return update_registration(Change{&nccl::BufferRegistrations::remove}, one, false);
      });
}

KernelPreference TorchCommNCCLX::kernel_preference_for(Collective collective,
                                                       const OperationOptions& options) const {
  const auto& default_preference = kernel_preferences_[static_cast<size_t>(collective)];
  if (options.hints.empty()) return default_preference;
  auto preference = ncclx::parse_call_kernel_preference(options.hints).value_or(default_preference);
  if (preference.provider == KernelPreference::KernelProvider::kAutomatic &&
      ncclx::is_reduction(collective) && is_batch_invariant(options.hints))
    preference.provider = KernelPreference::KernelProvider::kKernels;
  return preference;
}

TorchCommNCCLX::KernelDecision TorchCommNCCLX::choose(KernelCall& call,
                                                      const SelectionQuery& query) const {
  const auto preference = kernel_preference_for(call.collective, query.options);
  if (preference.provider == KernelPreference::KernelProvider::kVendor) return {false};
  const auto& team = kernels()->team();
  call.algorithm = preference.algorithm;
  call.blocks = preference.blocks;
  if (preference.algorithm != KernelAlgorithm::kAutomatic) return {team.can_launch(call)};
  // Kernels run at any size what the library cannot do, or computes differently.
  const bool only_kernels =
      !nccl::is_reducible(static_cast<at::ScalarType>(call.dtype)) || orders_floats(call);
  const bool library_may =
      preference.provider == KernelPreference::KernelProvider::kAutomatic && !only_kernels;
  // The library needs one launch for all slots of a list, kernels need one for each slot.
  const bool is_list = query.op == OpName::reduce_scatter || query.op == OpName::reduce_scatter_v;
  if (is_list && library_may) return {false};
  if (const auto measured = choose_from_tuning(call, query, library_may)) return *measured;
  if (library_may && !ctran::prefers_kernels(call.collective, team.size(), query.bytes))
    return {false};
  return {team.can_launch(call)};
}

int TorchCommNCCLX::max_blocks(Collective collective, const OperationOptions& options) const {
  const auto preference = kernel_preference_for(collective, options);
  return preference.algorithm == KernelAlgorithm::kAutomatic ? preference.blocks : 0;
}

void TorchCommNCCLX::require_library_allowed(Collective collective,
                                             const OperationOptions& options) const {
  if (!ncclx::is_reduction(collective) || getSize() == 1) return;
  if (!is_batch_invariant(options.hints, batch_invariant_)) return;
  throw CommError(
      Errc::kUnsupported,
      "hint batch_invariant: only kernels support it, and they cannot run this operation" +
          (kernels() == nullptr ? ": " + kernels_unavailable_reason_
           : workspace_error().empty()
               ? std::string()
               : ": their workspace cannot be allocated: " + workspace_error()) +
          "; omit the hint if the library may run the reduction");
}

void TorchCommNCCLX::before_collective() {
  // The ranks exchange data through the library, which cannot be done in a capture.
  if (!has_tried_kernels_ && getSize() > 1 && !is_capturing()) connect_kernels_by_all_gather();
}

KernelBackend::Fallback TorchCommNCCLX::fallback_for(Collective collective) const {
  if (kernel_preferences_[static_cast<size_t>(collective)].provider !=
      KernelPreference::KernelProvider::kAutomatic)
    return {"nccl", "as requested"};
  return {"nccl", kernels() != nullptr ? "table" : kernels_unavailable_reason_};
}

std::shared_ptr<TorchCommBackend> TorchCommNCCLX::split(const std::vector<int>& ranks,
                                                        const std::string& name,
                                                        const CommOptions& options) {
  const int count = split_count_++;
  if (ranks.empty()) return NcclApiBackend::split(ranks, name, options);
  const auto lowest_rank = std::to_string(*std::min_element(ranks.begin(), ranks.end()));
  auto backend = NcclApiBackend::split(ranks,
                                       std::string(getCommName()) + "::split::" + lowest_rank +
                                           "_" + name + "_" + std::to_string(count),
                                       options);
  auto& child = static_cast<TorchCommNCCLX&>(*backend);
  child.shared_tuning_ = shared_tuning_;  // the child sets up its kernels later
  child.set_dump_visible(true);
  return backend;
}

std::vector<std::string> TorchCommNCCLX::links() const {
  if (!isInitialized()) return {};
  const auto text =
      kernels() != nullptr && getSize() > 1
          ? std::string("kernels over mapped memory, and nccl")
          : "nccl alone (" + (getSize() > 1 ? kernels_unavailable_reason_ : "one rank") + ")";
  std::vector<std::string> all(static_cast<size_t>(getSize()), text);
  all[static_cast<size_t>(getRank())] = "self";
  return all;
}

std::vector<TorchCommNCCLX::KernelRow> TorchCommNCCLX::kernel_table() {
  std::vector<KernelRow> rows;
  for (const auto& row : ctran::default_rows())
    rows.emplace_back(name_of(row.collective), row.ranks.last, row.bytes.last);
  return rows;
}

void TorchCommNCCLX::set_config(const Hints& config) {
  try {
    ncclx::apply_config(kernel_preferences_, config);
    clear_selection_cache();
  } catch (const CommError& e) {
    throw CommError(e.code(), e.why(),
                    {.op = "set_config", .comm = std::string(getCommName()), .rank = getRank()});
  }
}

}  // namespace torch::comms
