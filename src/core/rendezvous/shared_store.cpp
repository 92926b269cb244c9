#include "core/rendezvous/shared_store.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/concurrency/executor.hpp"
#include "base/concurrency/per_process.hpp"
#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "base/os/secret.hpp"
#include "bootstrap/poll_pause.hpp"
#include "core/rendezvous/tcp_store.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using std::chrono::milliseconds;
using Clock = Deadline::Clock;

// How long a call of the store may exceed its limit before it counts as stuck.
constexpr milliseconds kStoreGrace{500};
// How often a waiter checks for interrupts.
constexpr milliseconds kStoreTick{50};

bool is_connection_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::DistNetworkError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

// The operations of one connection, and the function that executes them on a thread.
class StoreQueue {
 public:
  enum State : int { kPending, kDone, kTimedOut, kAbandoned };

  struct StoreRequest {
    SharedStore::StoreOperation attempt;
    Clock::time_point begin, deadline, due;
    std::atomic<int> state{kPending};  // written under the queue's mutex
    std::exception_ptr error{};        // set before state
  };
  using RequestPtr = std::shared_ptr<StoreRequest>;

  explicit StoreQueue(SharedStore::StorePtr store) : store_(std::move(store)) {}

  // Starts the function; close() or move_to() must follow.
  // Throws: std::system_error if no thread can be started.
  static std::shared_ptr<StoreQueue> start(SharedStore::StorePtr store) {
    auto queue = std::make_shared<StoreQueue>(std::move(store));
    base::Executor::process().run([queue] { queue->work(); });
    return queue;
  }

  RequestPtr add(SharedStore::StoreOperation attempt, milliseconds limit) {
    const auto now = Clock::now();
    auto request = std::make_shared<StoreRequest>();
    request->attempt = std::move(attempt);
    request->begin = request->due = now;
    request->deadline = now + limit;
    add(request);
    return request;
  }

  // Waits for the end of `request` until `until`.
  // Returns: the state of the request.
  int wait(const StoreRequest& request, Clock::time_point until) {
    std::unique_lock lock(mutex_);
    ended_.wait_until(lock, until, [&] { return request.state.load() != kPending; });
    return request.state.load();
  }

  void abandon(StoreRequest& request) {
    const std::lock_guard lock(mutex_);
    if (request.state.load() == kPending) request.state = kAbandoned;
  }

  milliseconds busy_for() const {
    const std::lock_guard lock(mutex_);
    if (!busy_since_) return milliseconds(0);
    return std::chrono::duration_cast<milliseconds>(Clock::now() - *busy_since_);
  }

  bool is_lost() const { return lost_.load(); }

  // Moves pending requests to `other`; this queue executes no more. A call that is running is
  // abandoned.
  void move_to(StoreQueue& other) {
    std::deque<RequestPtr> requests;
    {
      const std::lock_guard lock(mutex_);
      requests = std::exchange(requests_, {});
      close_locked();
    }
    for (auto& request : requests) other.add(std::move(request));
  }

  // Ends the function after all pending operations have run, and returns when the store is
  // released. A call that has been running for half a second is abandoned.
  void close() {
    std::unique_lock lock(mutex_);
    close_locked();
    const auto begin = busy_since_.value_or(Clock::now());
    ended_.wait_until(lock, begin + kStoreGrace, [this] { return has_ended_; });
  }

 private:
  void add(RequestPtr request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    is_signaled_ = true;
    changed_.notify_one();
  }

  void close_locked() {
    closed_ = true;
    is_signaled_ = true;
    changed_.notify_one();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      is_signaled_ = false;
      std::erase_if(requests_, [](const auto& r) { return r->state.load() != kPending; });
      const auto next =
          std::ranges::min_element(requests_, {}, [](const auto& r) { return r->due; });
      if (next == requests_.end()) {
        if (closed_) break;
        lock.unlock();
        spin_briefly([this] { return is_signaled_.load(); });
        lock.lock();
        changed_.wait(lock, [this] { return is_signaled_.load(); });
      } else if (const auto due = (*next)->due; due > Clock::now()) {
        changed_.wait_until(lock, due, [this] { return is_signaled_.load(); });
      } else {
        // attempt() unlocks, and the caller can then remove the request from `requests_`.
        // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
        const auto request = *next;
        attempt(*request, lock);
      }
    }
    auto store = std::move(store_);
    lock.unlock();
    store.reset();
    lock.lock();
    has_ended_ = true;
    ended_.notify_all();
  }

  void attempt(StoreRequest& request, std::unique_lock<std::mutex>& lock) {
    const auto now = Clock::now();
    busy_since_ = now;
    lock.unlock();
    bool complete = true;
    std::exception_ptr error;
    try {
      complete = request.attempt(*store_);
    } catch (...) {
      error = std::current_exception();
      if (is_connection_error(error)) lost_ = true;
    }
    lock.lock();
    busy_since_.reset();
    if (request.state.load() != kPending) return;
    if (!complete && now < request.deadline) {
      request.due =
          std::min(Clock::now() + bootstrap::poll_pause(now - request.begin), request.deadline);
      return;
    }
    request.error = error;
    request.state = complete ? kDone : kTimedOut;
    ended_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_, ended_;
  SharedStore::StorePtr store_;
  std::deque<RequestPtr> requests_;
  std::optional<Clock::time_point> busy_since_;
  bool closed_ = false, has_ended_ = false;
  std::atomic<bool> is_signaled_{false};  // a request was added, or the queue was closed
  std::atomic<bool> lost_{false};
};

namespace {

// The shared stores of this process: by the object that the program passed, and by the address of
// servers that the communicators found themselves.
struct SharedStoreRegistry {
  std::mutex mutex;
  std::map<const c10d::Store*, std::weak_ptr<SharedStore>> by_object;
  std::map<std::string, std::weak_ptr<SharedStore>> by_address;
};

base::PerProcess<SharedStoreRegistry> registry;

template <class Key>
std::shared_ptr<SharedStore> find(std::map<Key, std::weak_ptr<SharedStore>>& all, const Key& key) {
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  const auto at = all.find(key);
  return at == all.end() ? nullptr : at->second.lock();
}

}  // namespace

std::shared_ptr<SharedStore> SharedStore::of(const StorePtr& root) {
  if (const auto* polled = dynamic_cast<const PolledStore*>(root.get())) return polled->shared();
  auto& all = registry.get();
  const std::lock_guard lock(all.mutex);
  auto shared = find<const c10d::Store*>(all.by_object, root.get());
  if (!shared) all.by_object[root.get()] = shared = std::make_shared<SharedStore>(root);
  return shared;
}

std::shared_ptr<SharedStore> SharedStore::connect(const std::string& host, uint16_t port,
                                                  milliseconds timeout, Deadline deadline,
                                                  const Context& context,
                                                  RefusedConnectPolicy refusal) {
  const auto address = host + ":" + std::to_string(port);
  auto& all = registry.get();
  const auto known = [&] {
    auto shared = find(all.by_address, address);
    return shared && !shared->is_lost() ? shared : nullptr;
  };
  {
    const std::lock_guard lock(all.mutex);
    if (auto shared = known()) return shared;
  }
  auto store = join_store(host, port, timeout, deadline, context, refusal);
  const std::lock_guard lock(all.mutex);
  if (auto shared = known()) return shared;  // another thread has connected first
  auto shared = std::make_shared<SharedStore>(std::move(store));
  all.by_address[address] = shared;
  return shared;
}

SharedStore::SharedStore(StorePtr root)
    : root_(std::move(root)), generation_(base::fork_generation()) {}

SharedStore::~SharedStore() {
  if (!queue_) return;
  if (generation_ == base::fork_generation())
    queue_->close();
  else  // a forked child has no such thread, and its locks may be held
    static_cast<void>(new std::shared_ptr<StoreQueue>(std::move(queue_)));
}

std::shared_ptr<StoreQueue> SharedStore::queue() {
  const std::lock_guard lock(mutex_);
  if (queue_) return queue_;
  try {
    return queue_ = StoreQueue::start(root_);
  } catch (const std::system_error& e) {
    throw CommError(Errc::kResourceExhausted,
                    std::string("no thread could be started for a store: ") + e.what());
  }
}

std::shared_ptr<StoreQueue> SharedStore::queue_if_started() const {
  const std::lock_guard lock(mutex_);
  return queue_;
}

SharedStore::StoreCallStatus SharedStore::run(StoreOperation attempt, milliseconds limit,
                                              const std::function<void()>& tick) {
  const auto executing = queue();
  const auto request = executing->add(std::move(attempt), limit);
  const auto state = [&] { return request->state.load(); };
  const auto until = request->deadline + kStoreGrace;
  spin_briefly([&] { return state() != StoreQueue::kPending; });
  try {
    while (state() == StoreQueue::kPending && Clock::now() < until) {
      if (executing->wait(*request, std::min(until, Clock::now() + kStoreTick)) !=
          StoreQueue::kPending)
        break;
      check_interrupt();
      if (tick) tick();
    }
  } catch (const std::exception&) {
    executing->abandon(*request);
    throw;
  }
  if (state() == StoreQueue::kPending) {
    executing->abandon(*request);
    return StoreCallStatus::kNoAnswer;
  }
  if (request->error) std::rethrow_exception(request->error);
  return state() == StoreQueue::kDone ? StoreCallStatus::kDone : StoreCallStatus::kTimedOut;
}

void SharedStore::post(StoreOperation attempt) {
  queue()->add(std::move(attempt), milliseconds(0));
}

milliseconds SharedStore::busy_for() const {
  const auto executing = queue_if_started();
  return executing ? executing->busy_for() : milliseconds(0);
}

bool SharedStore::is_lost() const {
  const auto executing = queue_if_started();
  return executing && executing->is_lost();
}

void SharedStore::ensure_responsive(Deadline deadline, const Context& context) {
  const auto ask = [](c10d::Store& store) {
    store.check({"torchcomms/alive"});
    return true;
  };
  const auto* const tcp = dynamic_cast<const c10d::TCPStore*>(root_.get());
  const auto connect_again = [&](RefusedConnectPolicy refusal) {
    replace(
        join_store(tcp->getHost(), tcp->getPort(), tcp->getTimeout(), deadline, context, refusal));
  };
  try {
    const bool may_replace = tcp != nullptr && !is_replaced_.load();
    if (run(ask, may_replace ? milliseconds(0) : deadline.remaining()) == StoreCallStatus::kDone)
      return;
    if (!may_replace || deadline.has_passed())
      throw CommError(Errc::kTimeout, "the store does not answer", context);
    base::log(base::LogLevel::kInfo,
              "the store at port " + std::to_string(tcp->getPort()) +
                  " has not answered within 0.5 s on the connection of the program, which may be "
                  "waiting on it: a second connection is opened");
  } catch (const c10::DistNetworkError&) {
    if (tcp == nullptr) throw;
    const auto loss = std::current_exception();
    try {
      return connect_again(RefusedConnectPolicy::kFail);
    } catch (const CommError& e) {
      // No new server listens at the address: the original loss says more than the refusal.
      if (e.code() == Errc::kPeerFailed) std::rethrow_exception(loss);
      throw;
    }
  }
  connect_again(RefusedConnectPolicy::kRetry);
}

void SharedStore::replace(StorePtr connection) {
  const std::lock_guard lock(mutex_);
  auto fresh = StoreQueue::start(std::move(connection));
  is_replaced_ = true;
  queue_->move_to(*fresh);
  queue_ = std::move(fresh);
}

std::optional<std::vector<uint8_t>> try_get(c10d::Store& store, const std::string& key) {
  if (dynamic_cast<c10d::TCPStore*>(&store) == nullptr) {
    if (!store.check({key})) return std::nullopt;
    return store.get(key);
  }
  // If the key is missing, compareSet() returns the expected value and sets nothing. No rank ever
  // sets this value.
  static const std::vector<uint8_t> missing = [] {
    const std::string text = "torchcomms: no such key " + std::to_string(base::random_number());
    return std::vector<uint8_t>(text.begin(), text.end());
  }();
  auto value = store.compareSet(key, missing, missing);
  if (value == missing) return std::nullopt;
  return value;
}

namespace {

std::string format_timeout_ms(milliseconds limit) { return bootstrap::format_duration(limit); }

void require_in_time(SharedStore::StoreCallStatus outcome, const std::vector<std::string>& keys,
                     milliseconds timeout) {
  if (outcome == SharedStore::StoreCallStatus::kDone) return;
  const std::string names = keys.empty() ? "" : keys.front() + (keys.size() > 1 ? ", ..." : "");
  C10_THROW_ERROR(DistStoreError,
                  "wait timeout after " + format_timeout_ms(timeout) + ", keys: " + names);
}

}  // namespace

PolledStore::PolledStore(std::shared_ptr<SharedStore> shared)
    : Store(shared->root()->getTimeout()), shared_(std::move(shared)) {}

// Runs one call and returns its result.
template <class Call>
auto PolledStore::call(const char* what, const Call& call) {
  using Result = std::invoke_result_t<Call, c10d::Store&>;
  const auto result = std::make_shared<std::optional<Result>>();
  const auto outcome = shared_->run(
      [result, call](c10d::Store& store) {
        result->emplace(call(store));
        return true;
      },
      timeout_);
  if (outcome != SharedStore::StoreCallStatus::kDone)
    C10_THROW_ERROR(DistStoreError, std::string("the store did not answer (") + what + ") within " +
                                        format_timeout_ms(timeout_));
  return std::move(**result);
}

c10::intrusive_ptr<c10d::Store> PolledStore::clone() {
  auto other = c10::make_intrusive<PolledStore>(shared_);
  other->setTimeout(timeout_);
  return other;
}

void PolledStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  call("set", [key, value](c10d::Store& store) {
    store.set(key, value);
    return true;
  });
}

std::vector<uint8_t> PolledStore::compareSet(const std::string& key,
                                             const std::vector<uint8_t>& expected,
                                             const std::vector<uint8_t>& desired) {
  return call("compareSet",
              [=](c10d::Store& store) { return store.compareSet(key, expected, desired); });
}

std::vector<uint8_t> PolledStore::get(const std::string& key) {
  const auto value = std::make_shared<std::optional<std::vector<uint8_t>>>();
  const auto outcome = shared_->run(
      [value, key](c10d::Store& store) { return (*value = try_get(store, key)).has_value(); },
      timeout_);
  require_in_time(outcome, {key}, timeout_);
  return std::move(**value);
}

int64_t PolledStore::add(const std::string& key, int64_t value) {
  return call("add", [key, value](c10d::Store& store) { return store.add(key, value); });
}

bool PolledStore::deleteKey(const std::string& key) {
  return call("deleteKey", [key](c10d::Store& store) { return store.deleteKey(key); });
}

bool PolledStore::check(const std::vector<std::string>& keys) {
  return call("check", [keys](c10d::Store& store) { return store.check(keys); });
}

int64_t PolledStore::getNumKeys() {
  return call("getNumKeys", [](c10d::Store& store) { return store.getNumKeys(); });
}

void PolledStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void PolledStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const auto outcome =
      shared_->run([keys](c10d::Store& store) { return store.check(keys); }, timeout);
  require_in_time(outcome, keys, timeout);
}

void PolledStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  call("append", [key, value](c10d::Store& store) {
    store.append(key, value);
    return true;
  });
}

std::vector<std::vector<uint8_t>> PolledStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
  return call("multiGet", [keys](c10d::Store& store) { return store.multiGet(keys); });
}

void PolledStore::multiSet(const std::vector<std::string>& keys,
                           const std::vector<std::vector<uint8_t>>& values) {
  call("multiSet", [keys, values](c10d::Store& store) {
    store.multiSet(keys, values);
    return true;
  });
}

bool PolledStore::hasExtendedApi() const { return shared_->root()->hasExtendedApi(); }

}  // namespace torch::comms
