#include "ctran/hierarchical/gpe.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/os/log.hpp"
#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "transport/waiting/wait_policy.hpp"

namespace torch::comms::ctran {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Intervals between two polls of the ring by a sleeping thread.
constexpr microseconds kLaunchedPollInterval{50}, kCapturedPollInterval{200};
// Interval at which an engine call is checked, if no notification comes.
constexpr milliseconds kPollInterval{50};

template <class Word>
std::atomic_ref<Word> word(Word& at) {
  return std::atomic_ref<Word>(at);
}

template <class T>
T* make_pinned(const gpu::Runtime& runtime, size_t size_bytes) {
  void* const at = runtime.allocate_pinned(size_bytes);
  std::memset(at, 0, size_bytes);
  return static_cast<T*>(at);
}

struct CommandOperation {
  const char* name;
  schedule::Operation operation;
};
CommandOperation operation_of(GpeCommand::Kind kind) {
  using schedule::Operation;
  switch (kind) {
    case GpeCommand::Kind::kAllReduce:
      return {"all_reduce", Operation::kAllReduce};
    case GpeCommand::Kind::kBroadcast:
      return {"broadcast", Operation::kBroadcast};
    case GpeCommand::Kind::kAllGather:
      return {"all_gather_single", Operation::kAllGather};
    case GpeCommand::Kind::kReduceScatter:
      return {"reduce_scatter_single", Operation::kReduceScatter};
    case GpeCommand::Kind::kBarrier:
      break;
  }
  return {"barrier", Operation::kBarrier};
}

std::string format_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

Gpe::Gpe(Options options) : options_(std::move(options)) {
  const auto& runtime = *options_.runtime;
  ring_ = make_pinned<kernels::HostRing>(runtime, sizeof(kernels::HostRing));
  control_ = make_pinned<kernels::KernelControl>(runtime, sizeof(kernels::KernelControl));
  if (options_.staging_bytes > 0)
    staging_ = make_pinned<std::byte>(runtime, options_.staging_bytes);
  if (!options_.rail) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    throw CommError(Errc::kResourceExhausted,
                    std::string("cannot start the GPE thread: ") + e.what());
  }
}

Gpe::~Gpe() {
  close();
  const gpu::CaptureModeGuard mode(*options_.runtime);
  options_.runtime->free_pinned(ring_);
  options_.runtime->free_pinned(control_);
  if (staging_ != nullptr) options_.runtime->free_pinned(staging_);
}

kernels::HostRingCall Gpe::make_call() const {
  kernels::HostRingCall call{};
  call.ring = ring_;
  call.control = control_;
  call.team_control = options_.team_control;
  return call;
}

void Gpe::check(int code) const {
  if (code != 0)
    throw CommError(Errc::kVendor,
                    std::string("cannot launch the kernel for the GPE thread of the host: ") +
                        options_.library.functions->error_text(code) + " (" + std::to_string(code) +
                        ")");
}

void Gpe::post(const GpeCommand& command, gpu::NativeStream stream) {
  auto call = this->make_call();
  call.timeout_ns = command.timeout_ms * 1'000'000;
  std::ranges::copy(to_words(command), call.words);
  check(options_.library.functions->post(call, stream));
  if (options_.runtime->capture_of(stream) != 0)
    captured_.store(true);
  else
    launched_.fetch_add(1);
  // Notifies under the lock; otherwise a thread between its check and its sleep would miss the
  // wake-up.
  const std::lock_guard lock(mutex_);
  wake_.notify_all();
}

void Gpe::wait(uint64_t limit_ns, gpu::NativeStream stream) {
  auto call = this->make_call();
  call.timeout_ns = limit_ns;
  check(options_.library.functions->wait_for_command(call, stream));
}

void Gpe::poison_output(void* output, size_t size_bytes, Dtype dtype, gpu::NativeStream stream) {
  auto call = this->make_call();
  call.output = output;
  call.output_bytes = size_bytes;
  call.nan = kernels::nan_of(dtype);
  check(options_.library.functions->poison_output(call, stream));
}

void Gpe::run() noexcept {
  execute_all();
  // Only after the thread has ended: once the waiting kernels exit, the stream may write to memory
  // that a command was sending.
  word(control_->abort).store(1, std::memory_order_release);
}

void Gpe::execute_all() noexcept {
  const auto policy = transport::WaitPolicy::for_ranks(2 * options_.polling_ranks);
  transport::Backoff backoff(policy);
  uint64_t next = 1;
  while (!stopping_.load()) {
    auto& slot = ring_->commands[next % kernels::kHostRingSlots];
    if (word(slot.number).load(std::memory_order_acquire) != next) {
      if (backoff.step()) sleep(next);
      continue;
    }
    CommandWords words;
    std::ranges::copy(slot.words, words.begin());
    try {
      is_busy_.store(true);
      if (stopping_.load()) return;
      execute(parse_command(words));
      is_busy_.store(false);
    } catch (const CommError& e) {
      fail(e);
      return;
    } catch (const std::exception& e) {
      fail(CommError(Errc::kInternal, e.what()));
      return;
    }
    word(ring_->done).store(next++, std::memory_order_release);
    backoff.reset();
  }
}

void Gpe::sleep(uint64_t next) {
  std::unique_lock lock(mutex_);
  const auto is_wanted = [&] { return stopping_.load() || launched_.load() >= next; };
  if (captured_.load())
    wake_.wait_for(lock, is_wanted() ? kLaunchedPollInterval : kCapturedPollInterval,
                   [this] { return stopping_.load(); });
  else if (is_wanted())
    wake_.wait_for(lock, kLaunchedPollInterval, [this] { return stopping_.load(); });
  else
    wake_.wait(lock, [&] { return is_wanted() || captured_.load(); });
}

void Gpe::execute(const GpeCommand& command) {
  const auto [name, operation] = operation_of(command.kind);
  const auto ranks = static_cast<size_t>(options_.rail->size());
  const size_t bytes = command.count * size_of(command.dtype);
  auto* const at = staging_ + command.begin;
  auto* const own = at + bytes * static_cast<size_t>(options_.rail->rank());
  ConstBytes input(at, bytes);
  Bytes output(at, bytes);
  auto blocks = schedule::Blocks::even(static_cast<int64_t>(command.count), options_.rail->size());
  if (operation == schedule::Operation::kReduceScatter) {
    input = {at, bytes * ranks};
    output = {own, bytes};
  } else if (operation == schedule::Operation::kAllGather) {
    input = {own, bytes};
    output = {at, bytes * ranks};
  }
  if (input.size() != output.size())
    blocks = schedule::Blocks::equal(static_cast<int64_t>(command.count), options_.rail->size());
  const EngineCall call{.name = name,
                        .operation = operation,
                        .dtype = static_cast<uint8_t>(command.dtype),
                        .element_bytes = static_cast<uint32_t>(size_of(command.dtype)),
                        .op = command.op,
                        .root = command.root,
                        .blocks = blocks,
                        .input = {&input, 1},
                        .output = {&output, 1},
                        .timeout = milliseconds(command.timeout_ms)};
  const auto between_hosts = [&](const CommError& error) {
    auto where = error.context();
    if (where.peer >= 0 && static_cast<size_t>(where.peer) < ranks)
      where.peer = communicator_rank(where.peer);
    for (int& rank : where.culprits) rank = communicator_rank(rank);
    where.rank = communicator_rank(options_.rail->rank());
    return CommError(error.code(),
                     "between hosts, in chunk " + std::to_string(command.chunk) + ", among ranks " +
                         format_ranks(options_.ranks) + " (here numbered from 0): " + error.why(),
                     where);
  };
  try {
    auto work = options_.rail->start(call);
    // abort() and close() abort the rail before they stop this thread, so the call completes.
    while (!work.wait_for(kPollInterval)) continue;
    if (const auto* error = work.error()) throw CommError(*error);
  } catch (const CommError& e) {  // also if the rail had failed before
    throw between_hosts(e);
  }
}

void Gpe::fail(const CommError& error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_.load() || failure_) return;
    failure_ = error;
  }
  word(control_->abort).store(1, std::memory_order_release);
  if (options_.on_failure) options_.on_failure();
}

std::optional<CommError> Gpe::failure() const {
  // Cheap while there is no failure.
  if (word(control_->abort).load(std::memory_order_acquire) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<kernels::StopReason> Gpe::stop_reason(uint64_t& command) const noexcept {
  const auto stop = word(control_->stop).load(std::memory_order_acquire);
  if (stop == 0) return std::nullopt;
  command = control_->launch;
  return static_cast<kernels::StopReason>(stop);
}

CommError Gpe::to_rail_ranks(const CommError& error) const {
  std::vector<int> culprits;
  for (const int rank : error.context().culprits) {
    const auto at = std::ranges::find(options_.ranks, rank);
    if (at != options_.ranks.end())
      culprits.push_back(static_cast<int>(at - options_.ranks.begin()));
  }
  Context where{.op = error.context().op};
  where.culprits = std::move(culprits);
  return {error.code(), error.why(), where};
}

void Gpe::abort(const CommError& why) noexcept {
  const std::lock_guard lock(mutex_);
  stop();
  // The lock keeps close() from releasing the rail.
  if (options_.rail) options_.rail->abort(to_rail_ranks(why));
}

void Gpe::stop() noexcept {
  stopping_.store(true);
  // Otherwise the thread does this when its command has ended.
  if (!is_busy_.load()) word(control_->abort).store(1, std::memory_order_release);
  wake_.notify_all();
}

void Gpe::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stop();
    // Aborts the rail only if a command is running: an abort would also drop what peers have not
    // received yet of the last command.
    if (is_busy_.load() && options_.rail) options_.rail->abort("the communicator was closed");
  }
  if (thread_.joinable()) thread_.join();
  std::unique_ptr<EngineGroup> rail;
  {
    const std::lock_guard lock(mutex_);
    rail = std::move(options_.rail);
  }
}

}  // namespace torch::comms::ctran
