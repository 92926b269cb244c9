#include "vendor/communicator.hpp"

#include <algorithm>
#include <future>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/concurrency/executor.hpp"
#include "base/os/log.hpp"

namespace torch::comms::nccl {
namespace {

using std::chrono::microseconds;

// The sleep between two polls of a nonblocking call. It starts short, because most calls are done
// within microseconds, and stays below what a person notices.
constexpr microseconds kFirstPause{20}, kLongestPause{2000};
// How long to wait for a thread in a blocking call of the library, which may never return.
constexpr std::chrono::milliseconds kCleanupTimeout{700};

// How often a blocking call polls for an abort or an interrupt.
constexpr std::chrono::milliseconds kTick{50};

constexpr int kFinalizeSince = 21400;
constexpr int kSplitSince = 21800;
constexpr int kRegisterSince = 21900;
constexpr int kShrinkSince = 22700;

Context context_of(const WaitOptions& wait) { return wait.context ? wait.context() : Context{}; }
CommError too_late(const WaitOptions& wait) {
  return {Errc::kTimeout, wait.timeout_text(), context_of(wait)};
}

// How long idle threads are kept: programs often make many communicators at once, and then none for
// hours.
constexpr std::chrono::seconds kKeepIdle{60};
// The heap that NCCL allocates and frees to read the machine's topology, for each communicator; a
// split needs it beside its parent's. If the memory goes back to the system in between, each
// communicator takes 10 to 20 ms longer.
constexpr size_t kKeepBytes = size_t{128} << 20;

// Runs `body` on a thread that has run `prepare`. The thread is abandoned if the call never
// returns.
// Throws: std::system_error if no thread can be started.
std::future<abi::Result> call_apart(Communicator::Prepare prepare,
                                    std::function<abi::Result()> body) {
  // A library that reads the machine's topology for every communicator takes twice as long on a new
  // thread. Other functions, which may run for hours, must not occupy threads with a retained heap.
  static constinit base::Executor executor(kKeepIdle, kKeepBytes);
  const auto promise = std::make_shared<std::promise<abi::Result>>();
  auto result = promise->get_future();
  executor.run([prepare = std::move(prepare), body = std::move(body), promise]() mutable {
    try {
      if (prepare) prepare();
      const auto done = body();
      body = nullptr;  // the caller, if still waiting, must be the last owner
      promise->set_value(done);
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  });
  return result;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<const VendorLibrary> library, int size, int rank,
                           bool blocks, Prepare prepare)
    : library_(std::move(library)),
      size_(size),
      rank_(rank),
      is_blocking_(blocks),
      prepare_(std::move(prepare)) {}

std::string Communicator::make_id(const VendorLibrary& library, const Context& context) {
  std::string id(library.vendor().unique_id_bytes, '\0');
  const auto result = library.get_unique_id(id);
  if (result != abi::kSuccess)
    throw CommError(Errc::kVendor,
                    std::string(library.vendor().library) +
                        " created no unique id: " + library.GetErrorString(result),
                    context);
  return id;
}

std::shared_ptr<Communicator> Communicator::connect(std::shared_ptr<const VendorLibrary> library,
                                                    int size, int rank, const std::string& id,
                                                    abi::Config config, Prepare prepare,
                                                    const WaitOptions& wait) {
  return begin_connect(std::move(library), size, rank, id, config, std::move(prepare),
                       context_of(wait))
      .wait(wait);
}

Communicator::PendingCommInit Communicator::begin_connect(
    std::shared_ptr<const VendorLibrary> library, int size, int rank, const std::string& id,
    abi::Config config, Prepare prepare, const Context& context) {
  const bool blocks = config.blocking != 0 || !library->can_be_nonblocking();
  PendingCommInit begun;
  auto& communicator = begun.communicator_;
  communicator.reset(new Communicator(std::move(library), size, rank, blocks, std::move(prepare)));
  communicator->copy_strings(config);
  begun.result_ = communicator->begin(
      [communicator = communicator.get(), id, config]() mutable {
        return communicator->library_->init_rank(&communicator->comm_, communicator->size_, id,
                                                 communicator->rank_, &config);
      },
      context);
  return begun;
}

// Waits a moment, because a program that exits with a start-up error may otherwise exit while the
// library's thread runs.
Communicator::PendingCommInit::~PendingCommInit() {
  if (result_.valid()) result_.wait_for(kCleanupTimeout);
}

std::shared_ptr<Communicator> Communicator::PendingCommInit::wait(const WaitOptions& wait) {
  auto result = std::move(result_);
  Lock lock(communicator_->mutex_);
  communicator_->finish(lock, result, wait);
  return communicator_;
}

std::shared_ptr<Communicator> Communicator::adopt(std::shared_ptr<const VendorLibrary> library,
                                                  abi::Comm comm, int size, int rank,
                                                  Prepare prepare) {
  std::shared_ptr<Communicator> communicator(
      new Communicator(std::move(library), size, rank, /*blocks=*/true, std::move(prepare)));
  communicator->comm_ = comm;
  return communicator;
}

Communicator::~Communicator() {
  // No other thread uses this object any more, and errors are of no interest. Graphs may hold
  // operations of a built-in library (Vendor::lookup); they must still run, as after close(), so
  // such a communicator is not aborted.
  const bool is_ours = library_->vendor().lookup != nullptr;
  const DestroyFunction end = library_->CommAbort != nullptr && (failure_ || !is_ours)
                                  ? library_->CommAbort
                              : failure_ ? nullptr
                                         : library_->CommDestroy;
  auto* const comm = release_handle();
  if (comm == nullptr || end == nullptr) return;
  try {
    auto result = destroy_async(end, comm);
    wait_until(result, Clock::now() + kCleanupTimeout);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kWarning, std::string("cannot destroy a communicator: ") + e.what());
  }
}

std::shared_ptr<Communicator> Communicator::split(int color, int key, int rank, int size,
                                                  abi::Config config, const WaitOptions& wait) {
  auto* const ask = library_->require(library_->CommSplit, "split()", kSplitSince);
  const bool blocks = config.blocking != 0 || !library_->can_be_nonblocking();
  std::shared_ptr<Communicator> child;
  if (color != abi::kNoColor) {
    child.reset(new Communicator(library_, size, rank, blocks, prepare_));
    child->copy_strings(config);
  }
  create_child(
      child,
      [this, ask, color, key, child, config]() mutable {
        abi::Comm unused = nullptr;
        auto* with = library_->vendor().has_config ? &config : nullptr;
        return ask(handle(), color, key, child ? &child->comm_ : &unused, with);
      },
      wait);
  return child;
}

std::shared_ptr<Communicator> Communicator::shrink(const std::vector<int>& excluded_ranks,
                                                   abi::Config config, Prepare prepare,
                                                   const WaitOptions& wait) {
  auto* const ask = library_->require(library_->CommShrink, "shrinking", kShrinkSince);
  const auto before =
      std::ranges::count_if(excluded_ranks, [this](int rank) { return rank < rank_; });
  const bool blocks = config.blocking != 0 || !library_->can_be_nonblocking();
  const std::shared_ptr<Communicator> child(
      new Communicator(library_, size_ - static_cast<int>(excluded_ranks.size()),
                       rank_ - static_cast<int>(before), blocks, std::move(prepare)));
  child->copy_strings(config);
  try {
    create_child(
        child,
        [this, ask, list = std::vector(excluded_ranks), child, config]() mutable {
          return ask(handle(), list.data(), static_cast<int>(list.size()), &child->comm_,
                     library_->vendor().has_config ? &config : nullptr, abi::kShrinkAbort);
        },
        wait);
  } catch (const CommError& e) {
    abort(e);
    throw;
  } catch (...) {
    abort({Errc::kAborted, "the shrink of the communicator was interrupted", context_of(wait)});
    throw;
  }
  return child;
}

int Communicator::count() {
  int count = size_;
  if (library_->CommCount != nullptr)
    call([&count](const VendorLibrary& table,
                  abi::Comm comm) { return table.CommCount(comm, &count); },
         [] { return WaitOptions{}; });
  return count;
}

void Communicator::create_child(const std::shared_ptr<Communicator>& child, Body body,
                                const WaitOptions& wait) {
  auto lock = enter();
  run(lock, std::move(body), wait);
  lock.unlock();
  if (!child) return;
  Lock own(child->mutex_);
  // The child's connection goes on in progress of its own.
  if (!child->is_blocking_)
    child->wait_while_in_progress(own, library_->vendor().in_progress, wait);
}

void Communicator::copy_strings(abi::Config& config) {
  const char** const texts[] = {&config.net_name, &config.comm_name};
  for (size_t i = 0; i < std::size(texts); ++i)
    if (*texts[i] != nullptr) *texts[i] = ((*names_)[i] = *texts[i]).c_str();
}

void* Communicator::register_memory(void* data, size_t size_bytes, const WaitOptions& wait) {
  auto* const ask = library_->require(library_->CommRegister, "tensor_register()", kRegisterSince);
  library_->require(library_->CommDeregister, "tensor_register()", kRegisterSince);
  void* registration = nullptr;
  call([&](const VendorLibrary&,
           abi::Comm comm) { return ask(comm, data, size_bytes, &registration); },
       [&wait]() -> const WaitOptions& { return wait; });
  return registration;
}

void Communicator::deregister_memory(void* registration, const WaitOptions& wait) {
  call([&](const VendorLibrary& library,
           abi::Comm comm) { return library.CommDeregister(comm, registration); },
       [&wait]() -> const WaitOptions& { return wait; });
}

abi::Window Communicator::open_window(void* data, size_t size_bytes, const WaitOptions& wait) {
  const auto opened = std::make_shared<abi::Window>(nullptr);
  auto lock = enter();
  run(
      lock,
      [this, data, size_bytes, opened] {
        return library_->CommWindowRegister(handle(), data, size_bytes, opened.get(),
                                            abi::kSymmetric);
      },
      wait);
  if (*opened == nullptr)
    throw CommError(Errc::kUnsupported, std::string(library_->vendor().library) + " " +
                                            library_->version_text() +
                                            " cannot register a window of " +
                                            std::to_string(size_bytes) + " bytes of this memory");
  return *opened;
}

void Communicator::close_window(abi::Window window, const WaitOptions& wait) {
  auto lock = enter();
  run(lock, [this, window] { return library_->CommWindowDeregister(handle(), window); }, wait);
}

void Communicator::attach_child(std::shared_ptr<Communicator> other) {
  const std::lock_guard lock(children_mutex_);
  children_.push_back(std::move(other));
}

void Communicator::detach_child(const Communicator& other) {
  const std::lock_guard lock(children_mutex_);
  std::erase_if(children_, [&other](const auto& each) { return each.get() == &other; });
}

std::vector<std::shared_ptr<Communicator>> Communicator::children() const {
  const std::lock_guard lock(children_mutex_);
  return children_;
}

Communicator::Lock Communicator::enter() {
  Lock lock(mutex_);
  failure_.check();
  if (handle() == nullptr) throw CommError(Errc::kFinalized, "the communicator is not connected");
  return lock;
}

void Communicator::run(Lock& lock, Body body, const WaitOptions& wait) {
  auto result = begin(std::move(body), context_of(wait));
  finish(lock, result, wait);
}

std::future<abi::Result> Communicator::begin(Body body, const Context& context) {
  if (!is_blocking_) {
    std::promise<abi::Result> done;
    done.set_value(body());
    return done.get_future();
  }
  try {
    return call_apart(prepare_,
                      [self = shared_from_this(), body = std::move(body)] { return body(); });
  } catch (const std::system_error& e) {
    throw CommError(Errc::kResourceExhausted,
                    std::string("no thread could be started: ") + e.what(), context);
  }
}

void Communicator::finish(Lock& lock, std::future<abi::Result>& result, const WaitOptions& wait) {
  while (result.wait_until(std::min(wait.deadline, Clock::now() + kTick)) !=
         std::future_status::ready) {
    failure_.check();
    if (wait.interrupt_check) wait.interrupt_check();
    if (Clock::now() >= wait.deadline) throw too_late(wait);
  }
  complete_call(lock, result.get(), [&wait]() -> const WaitOptions& { return wait; });
}

void Communicator::wait_while_in_progress(Lock& lock, abi::Result result, const WaitOptions& wait) {
  auto pause = kFirstPause;
  while (result == library_->vendor().in_progress) {
    abi::Result state = abi::kSuccess;
    const auto asked = library_->CommGetAsyncError(handle(), &state);
    result = asked == abi::kSuccess ? state : asked;
    if (result != library_->vendor().in_progress) break;
    if (Clock::now() >= wait.deadline) throw too_late(wait);
    aborted_.wait_for(lock, pause);
    failure_.check();
    if (wait.interrupt_check) wait.interrupt_check();
    pause = std::min(pause * 2, kLongestPause);
  }
  if (result != abi::kSuccess) throw error_of(result, context_of(wait));
}

CommError Communicator::error_of(abi::Result result, const Context& context) const {
  const auto& vendor = library_->vendor();
  // A built-in library reports invalid arguments before it has done anything.
  if (vendor.lookup != nullptr && result == abi::kInvalidUsage)
    return {Errc::kInvalidArgument, library_->GetLastError(handle()), context};
  std::string why = std::string(vendor.library) + " " + library_->version_text() + ": " +
                    library_->GetErrorString(result);
  if (auto* const comm = handle(); library_->GetLastError != nullptr && comm != nullptr)
    if (const char* more = library_->GetLastError(comm); more != nullptr && *more != '\0')
      why += std::string(" (") + more + ")";
  const bool remote = vendor.has_config && result == abi::kRemoteError;
  return {remote ? Errc::kPeerFailed : Errc::kVendor, why, context};
}

std::exception_ptr Communicator::check_async(const std::function<Context()>& context) noexcept {
  if (library_->CommGetAsyncError == nullptr) return nullptr;
  for (const auto& other : children())
    if (auto error = other->check_async(context)) return error;
  const Lock lock(mutex_, std::try_to_lock);  // a thread that holds the lock sees the error itself
  if (!lock || handle() == nullptr || failure_) return nullptr;
  abi::Result state = abi::kSuccess;
  const auto asked = library_->CommGetAsyncError(handle(), &state);
  if (asked != abi::kSuccess) state = asked;
  if (state == abi::kSuccess || state == library_->vendor().in_progress) return nullptr;
  return std::make_exception_ptr(error_of(state, context()));
}

// Also called without the lock. The exchange makes sure that a communicator is destroyed only once.
abi::Comm Communicator::release_handle() noexcept {
  return std::atomic_ref(comm_).exchange(nullptr);
}

bool Communicator::cancel(const CommError& why) noexcept {
  const bool first = failure_.set(why);
  aborted_.notify_all();
  return first;
}

bool Communicator::abort(const CommError& why) noexcept {
  const bool first = cancel(why);
  const auto descendants = children();
  for (const auto& other : descendants) other->cancel(why);
  const auto until = Clock::now() + kCleanupTimeout;
  try {
    std::vector<PendingAbort> pending_aborts;
    begin_abort(until, pending_aborts);
    for (auto& pending_abort : pending_aborts) wait_until(pending_abort.result, until);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kWarning, std::string("cannot abort a communicator: ") + e.what());
  }
  return first;
}

void Communicator::begin_abort(Clock::time_point until, std::vector<PendingAbort>& pending_aborts) {
  for (const auto& other : children()) other->begin_abort(until, pending_aborts);
  Lock lock(mutex_, std::defer_lock);
  // Polls with try_lock(), because GCC's thread sanitizer does not support the timed lock of a
  // mutex.
  for (auto pause = kFirstPause; !lock.try_lock() && Clock::now() < until;
       pause = std::min(pause * 2, kLongestPause))
    std::this_thread::sleep_for(pause);
  auto* const comm = library_->CommAbort != nullptr ? release_handle() : nullptr;
  if (comm == nullptr) return;
  if (!lock)
    base::log(base::LogLevel::kWarning,
              "aborting a communicator although a call of the library has not returned");
  pending_aborts.push_back({std::move(lock), destroy_async(library_->CommAbort, comm)});
}

std::future<abi::Result> Communicator::destroy_async(DestroyFunction end, abi::Comm comm) const {
  return call_apart(prepare_,
                    [library = library_, names = names_, end, comm] { return end(comm); });
}

void Communicator::wait_until(std::future<abi::Result>& result,
                              Clock::time_point until) const noexcept {
  try {
    if (result.wait_until(until) != std::future_status::ready)
      base::log(base::LogLevel::kWarning,
                "the library has not destroyed a communicator yet: it waits for CUDA graphs with "
                "its operations, for the device, or for peer ranks that have not destroyed theirs");
    else if (const auto code = result.get(); code != abi::kSuccess)
      base::log(base::LogLevel::kWarning,
                std::string("the library could not destroy a communicator: ") +
                    library_->GetErrorString(code));
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kWarning, std::string("cannot destroy a communicator: ") + e.what());
  }
}

void Communicator::close(const WaitOptions& wait) {
  for (const auto& other : children()) {
    other->close(wait);
    detach_child(*other);
  }
  auto lock = enter();
  if (library_->CommFinalize != nullptr && library_->version() >= kFinalizeSince)
    run(lock, [this] { return library_->CommFinalize(handle()); }, wait);
  const auto destroy = [this] {
    auto* const comm = release_handle();
    return comm != nullptr ? library_->CommDestroy(comm) : abi::kSuccess;
  };
  run(lock, destroy, wait);
}

}  // namespace torch::comms::nccl
