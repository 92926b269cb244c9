#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "bootstrap/timeout.hpp"
#include "core/rendezvous/tcp_probe.hpp"

namespace torch::comms {

class StoreQueue;

// One connection of this process to a c10d store, shared by all communicators. A thread of its own
// executes their operations one after another. The thread never calls an operation that waits: it
// asks for the keys of all waiters in turn. So a waiter that is stuck or interrupted ends no other
// wait.
//
// Threads: any, for every method.
// Lifetime: the store is released with the last reference, before the destructor returns, unless a
// call of the store does not return within half a second.
class TC_API SharedStore {
 public:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  // An operation on the store. It returns true when it is complete, and false to be called again
  // later. It runs on the thread of the store, so it must own all that it uses, and must not wait.
  using StoreOperation = std::function<bool(c10d::Store& store)>;

  enum class StoreCallStatus { kDone, kTimedOut, kNoAnswer };

  // Returns: the SharedStore of this process for `root`, a store below all prefixes.
  static std::shared_ptr<SharedStore> of(const StorePtr& root);

  // Returns: this process' connection to the TCPStore server at host:port; opens it if there is
  // none, or if it is lost. `timeout` becomes the timeout of a new one.
  // Throws: CommError with `context`, as join_store().
  static std::shared_ptr<SharedStore> connect(
      const std::string& host, uint16_t port, std::chrono::milliseconds timeout,
      bootstrap::Deadline deadline, const Context& context,
      RefusedConnectPolicy refusal = RefusedConnectPolicy::kRetry);

  explicit SharedStore(StorePtr root);
  ~SharedStore();
  SharedStore(const SharedStore&) = delete;
  SharedStore& operator=(const SharedStore&) = delete;

  // Calls `attempt` until it is complete or `limit` has passed. `tick` runs on the calling thread
  // about 20 times a second.
  // Returns: kTimedOut if the last attempt, at the limit, was not complete; kNoAnswer if a call of
  // the store has not returned.
  // Blocks: until the result is known, at most half a second beyond `limit`.
  // Throws: the exceptions of `attempt` and `tick`; Interrupted; CommError(kResourceExhausted).
  StoreCallStatus run(StoreOperation attempt, std::chrono::milliseconds limit,
                      const std::function<void()>& tick = {});

  // Calls `attempt` once, later; the caller does not learn how it ends.
  void post(StoreOperation attempt);

  // Returns: how long the call that runs now has been running; zero if none does.
  std::chrono::milliseconds busy_for() const;

  // Makes sure that operations are executed. If the connection does not answer within half a
  // second, a thread of the program may be waiting on the same TCPStore. Then a second connection
  // replaces it for all communicators. A lost connection is replaced, too, if a server listens at
  // the same address again.
  // Throws: the error of c10d for a lost connection; CommError with `context`: kTimeout.
  void ensure_responsive(bootstrap::Deadline deadline, const Context& context);

  // Returns: true after the connection was closed, reset or refused.
  bool is_lost() const;

  // Returns: the store that was passed to of(), or the connection that connect() opened.
  const StorePtr& root() const { return root_; }

 private:
  std::shared_ptr<StoreQueue> queue();                   // starts the queue on first use
  std::shared_ptr<StoreQueue> queue_if_started() const;  // null if no operation was requested yet
  void replace(StorePtr connection);

  const StorePtr root_;
  const uint64_t generation_;             // fork generation of the process that has the thread
  std::atomic<bool> is_replaced_{false};  // the queue uses another connection than root_
  mutable std::mutex mutex_;              // guards queue_
  std::shared_ptr<StoreQueue> queue_;     // shared with its thread
};

// Asks once for the value of `key`, without a wait. A TCPStore is asked by one request: its own
// get() takes two, and a check() before it one more.
// Returns: nothing if the key is not there.
// Throws: what the store throws.
TC_API std::optional<std::vector<uint8_t>> try_get(c10d::Store& store, const std::string& key);

// A SharedStore as a c10d store, for code of torch and for prefixes. Its waits and gets ask for the
// key again and again; getTimeout() bounds every call.
class TC_API PolledStore final : public c10d::Store {
 public:
  explicit PolledStore(std::shared_ptr<SharedStore> shared);

  const std::shared_ptr<SharedStore>& shared() const { return shared_; }

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override;

 private:
  template <class Call>
  auto call(const char* what, const Call& call);

  const std::shared_ptr<SharedStore> shared_;
};

}  // namespace torch::comms
