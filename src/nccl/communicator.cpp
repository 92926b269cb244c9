#include "nccl/communicator.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.hpp"

namespace torch::comms::nccl {
namespace {

using std::chrono::microseconds;

// How long to sleep between two questions whether a call is done: short at first, since most are
// done within microseconds, and never so long that a person notices.
constexpr microseconds kFirstNap{20}, kLongestNap{2000};
// Whoever is in the library of a communicator that blocks may never come out.
constexpr std::chrono::milliseconds kPatience{1000};

constexpr int kFinalizeSince = 21400;
constexpr int kSplitSince = 21800;
constexpr int kRegisterSince = 21900;

}  // namespace

Communicator::Communicator(std::shared_ptr<const Table> library, int size, int rank)
    : library_(std::move(library)), size_(size), rank_(rank) {}

std::string Communicator::make_id(const Table& library, const Context& context) {
  std::string id(library.vendor().unique_id_bytes, '\0');
  const auto result = library.get_unique_id(id);
  if (result != abi::kSuccess)
    throw CommError(Errc::kVendor,
                    std::string(library.vendor().library) +
                        " made no unique id: " + library.GetErrorString(result),
                    context);
  return id;
}

std::shared_ptr<Communicator> Communicator::connect(std::shared_ptr<const Table> library, int size,
                                                    int rank, const std::string& id,
                                                    abi::Config config, const Wait& wait,
                                                    const Context& context) {
  std::shared_ptr<Communicator> made(new Communicator(std::move(library), size, rank));
  Lock lock(made->mutex_);
  made->own(config);
  const auto result = made->library_->init_rank(&made->comm_, size, id, rank, &config);
  made->settle(lock, result, wait, context);
  return made;
}

Communicator::~Communicator() {
  if (comm_ == nullptr) return;
  // Nobody else is here any more. What has gone wrong is known, or nobody wants to know.
  if (library_->CommAbort != nullptr)
    library_->CommAbort(comm_);
  else if (!failure_)
    library_->CommDestroy(comm_);
}

std::shared_ptr<Communicator> Communicator::split(int color, int key, int rank, int size,
                                                  abi::Config config, const Wait& wait,
                                                  const Context& context) {
  auto* const ask = library_->require(library_->CommSplit, "split()", kSplitSince);
  std::shared_ptr<Communicator> made;
  if (color != abi::kNoColor) {
    made.reset(new Communicator(library_, size, rank));
    made->own(config);
  }
  abi::Comm nobody = nullptr;
  abi::Comm* into = made ? &made->comm_ : &nobody;
  auto* with = library_->vendor().has_config ? &config : nullptr;
  try {
    call([&](const Table&, abi::Comm comm) { return ask(comm, color, key, into, with); }, wait,
         context);
    if (!made) return nullptr;
    Lock lock(made->mutex_);
    // The child goes on by itself.
    const bool blocks = library_->CommGetAsyncError == nullptr;
    made->settle(lock, blocks ? abi::kSuccess : library_->vendor().in_progress, wait, context);
  } catch (const CommError& e) {
    // The library may still write to what it was given: not when the parent is aborted.
    abort(e);
    throw;
  } catch (...) {
    abort({Errc::kAborted, "the split was interrupted", context});
    throw;
  }
  return made;
}

void Communicator::own(abi::Config& config) {
  const char** const texts[] = {&config.net_name, &config.comm_name};
  for (size_t i = 0; i < std::size(texts); ++i)
    if (*texts[i] != nullptr) *texts[i] = (names_[i] = *texts[i]).c_str();
}

void* Communicator::register_memory(void* data, size_t size_bytes, const Wait& wait,
                                    const Context& context) {
  auto* const ask = library_->require(library_->CommRegister, "tensor_register()", kRegisterSince);
  library_->require(library_->CommDeregister, "tensor_register()", kRegisterSince);
  void* registration = nullptr;
  call([&](const Table&, abi::Comm comm) { return ask(comm, data, size_bytes, &registration); },
       wait, context);
  return registration;
}

void Communicator::deregister_memory(void* registration, const Wait& wait, const Context& context) {
  call([&](const Table& library,
           abi::Comm comm) { return library.CommDeregister(comm, registration); },
       wait, context);
}

Communicator::Lock Communicator::enter() {
  Lock lock(mutex_);
  failure_.check();
  if (comm_ == nullptr) throw CommError(Errc::kFinalized, "the communicator is not connected");
  return lock;
}

void Communicator::group(const Body& body, const Wait& wait, const Context& context) {
  auto lock = enter();
  library_->GroupStart();
  auto result = body(*library_, comm_);
  // Also after an error: a group that is open takes the next calls of this thread, too.
  const auto end = library_->GroupEnd();
  if (result == abi::kSuccess || result == library_->vendor().in_progress) result = end;
  settle(lock, result, wait, context);
}

void Communicator::call(const Body& body, const Wait& wait, const Context& context) {
  auto lock = enter();
  settle(lock, body(*library_, comm_), wait, context);
}

void Communicator::settle(Lock& lock, abi::Result result, const Wait& wait,
                          const Context& context) {
  auto nap = kFirstNap;
  while (result == library_->vendor().in_progress) {
    abi::Result state = abi::kSuccess;
    const auto asked = library_->CommGetAsyncError(comm_, &state);
    result = asked == abi::kSuccess ? state : asked;
    if (result != library_->vendor().in_progress) break;
    if (Clock::now() >= wait.deadline) throw CommError(Errc::kTimeout, wait.limit_text, context);
    aborted_.wait_for(lock, nap);
    failure_.check();
    if (wait.check) wait.check();
    nap = std::min(nap * 2, kLongestNap);
  }
  if (result != abi::kSuccess) throw error_of(result, context);
}

CommError Communicator::error_of(abi::Result result, const Context& context) const {
  const auto& vendor = library_->vendor();
  std::string why = std::string(vendor.library) + " " + library_->version_text() + ": " +
                    library_->GetErrorString(result);
  if (library_->GetLastError != nullptr && comm_ != nullptr)
    if (const char* more = library_->GetLastError(comm_); more != nullptr && *more != '\0')
      why += std::string(" (") + more + ")";
  const bool remote = vendor.has_config && result == abi::kRemoteError;
  return {remote ? Errc::kPeerFailed : Errc::kVendor, why, context};
}

std::exception_ptr Communicator::check_async(const Context& context) noexcept {
  if (library_->CommGetAsyncError == nullptr) return nullptr;
  const Lock lock(mutex_, std::try_to_lock);  // whoever is inside will find it himself
  if (!lock || comm_ == nullptr || failure_) return nullptr;
  abi::Result state = abi::kSuccess;
  const auto asked = library_->CommGetAsyncError(comm_, &state);
  if (asked != abi::kSuccess) state = asked;
  if (state == abi::kSuccess || state == library_->vendor().in_progress) return nullptr;
  return std::make_exception_ptr(error_of(state, context));
}

bool Communicator::give_up(const CommError& why) noexcept {
  const bool first = failure_.set(why);
  aborted_.notify_all();
  return first;
}

bool Communicator::abort(const CommError& why) noexcept {
  const bool first = give_up(why);
  Lock lock(mutex_, std::defer_lock);
  if (!lock.try_lock_for(kPatience))
    base::log(base::LogLevel::kWarning,
              "aborting a communicator while a call of the library does not return");
  if (comm_ == nullptr || library_->CommAbort == nullptr) return first;
  const auto result = library_->CommAbort(std::exchange(comm_, nullptr));
  if (result != abi::kSuccess)
    base::log(base::LogLevel::kWarning,
              std::string("the library could not abort a communicator: ") +
                  library_->GetErrorString(result));
  return first;
}

void Communicator::close(const Wait& wait, const Context& context) {
  auto lock = enter();
  if (library_->CommFinalize != nullptr && library_->version() >= kFinalizeSince)
    settle(lock, library_->CommFinalize(comm_), wait, context);
  const auto result = library_->CommDestroy(std::exchange(comm_, nullptr));
  if (result != abi::kSuccess) throw error_of(result, context);
}

}  // namespace torch::comms::nccl
