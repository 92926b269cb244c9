#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "bootstrap/key_value_store.hpp"
#include "bootstrap/timeout.hpp"
#include "core/comm/reverse_lookup.hpp"
#include "core/rendezvous/shared_store.hpp"

namespace torch::comms {

// Returns: the name of a store in error texts: "tcp://host:port", "file /tmp/x", "the memory of
// this process (HashStore)"; for other kinds "as passed to new_comm".
std::string store_address(const c10::intrusive_ptr<c10d::Store>& store);

// Returns: a store with the keys and prefixes of `store`, whose calls run on the SharedStore of
// this process. The function opens a connection only if that of `store` is lost, or does not answer
// within half a second because the program is waiting on it.
// Blocks: until the store answers, at most 1 s past `deadline`.
// Throws: as StoreKeyValue.
c10::intrusive_ptr<c10d::Store> share_store(const c10::intrusive_ptr<c10d::Store>& store,
                                            bootstrap::Deadline deadline, const Context& context);

// Returns: the store below all prefixes, and below the PolledStore that share_store() adds.
c10::intrusive_ptr<c10d::Store> root_store(const c10::intrusive_ptr<c10d::Store>& store);

// Returns: the TCPStore below all prefixes if there is one, otherwise `store`.
c10::intrusive_ptr<c10d::Store> tcp_root(const c10::intrusive_ptr<c10d::Store>& store);

// Implements bootstrap::KeyValueStore with a c10d store, by the SharedStore of this process.
// Blocks: get(): at most half a second past its limit. Other methods: at most 1 s past `deadline`.
// A call that begins after `deadline` blocks at most 3 s, so that ranks can publish why they leave.
// These bounds hold even if the store's server is stopped.
// Throws: CommError with `context`: kTimeout, kPeerFailed (the connection was lost),
// kResourceExhausted (descriptors, memory or threads), kSystem (another error of the store, with
// its text); Interrupted. After a call that did not return, all later calls throw kTimeout at once.
// Threads: one at a time.
class TC_API StoreKeyValue final : public bootstrap::KeyValueStore {
 public:
  // Makes no call of the store. `deadline` bounds all methods except get(). `address`: the name of
  // the store in error texts; empty: store_address().
  StoreKeyValue(const c10::intrusive_ptr<c10d::Store>& store, bootstrap::Deadline deadline,
                Context context, const std::string& address = {});

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds limit) override;
  // Gets a value as above; `look` runs on this thread about 20 times a second meanwhile. It may
  // throw CommError to end the wait, and must not call check_interrupt().
  std::string get(const std::string& key, std::chrono::milliseconds limit,
                  const std::function<void()>& look);
  bool has(const std::vector<std::string>& keys) override;  // at least one key
  int64_t add(const std::string& key, int64_t amount) override;
  void remove(const std::string& key) override;
  std::string address() const override { return address_; }

  // Makes sure, until `deadline`, that the store executes operations: see
  // SharedStore::ensure_responsive().
  void ensure_responsive();

 private:
  template <class Call>
  auto call(const std::string& what, const std::string& key, const Call& call);
  void run(const std::string& what, std::chrono::milliseconds limit,
           SharedStore::StoreOperation attempt);
  [[noreturn]] void raise(const std::string& what, const std::exception& e, bool is_late) const;
  [[noreturn]] void raise_unresponsive(const std::string& what) const;
  std::string path(const std::string& key) const { return prefix_ + key; }
  std::chrono::milliseconds timeout_with_grace() const;

  std::shared_ptr<SharedStore> shared_;
  std::string prefix_;
  bootstrap::Deadline deadline_;
  Context context_;
  std::string address_;
  std::optional<ReverseLookupTimer> lookup_;  // started when the store is slow for the first time
  bool is_stuck_ = false;                     // a call did not return
};

}  // namespace torch::comms
