#pragma once

#include <functional>
#include <string>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "bootstrap/kv.hpp"
#include "bootstrap/limit.hpp"
#include "core/bounded.hpp"

namespace torch::comms {

// "tcp://host:port", "file /tmp/x", "the memory of this process (HashStore)": a store for error
// texts.
std::string store_address(const c10::intrusive_ptr<c10d::Store>& store);

// The same store on a connection of its own, so that a wait here does not block the user's calls on
// `store` and is not blocked by them. Stores without connections are returned as they are. Throws
// CommError(kTimeout, kPeerFailed) with `context`.
c10::intrusive_ptr<c10d::Store> own_connection(const c10::intrusive_ptr<c10d::Store>& store,
                                               bootstrap::Deadline deadline,
                                               const Context& context);

// The TCPStore below all prefixes, where there is one; else `store`.
c10::intrusive_ptr<c10d::Store> tcp_root(const c10::intrusive_ptr<c10d::Store>& store);

// `connection` under a prefix. Keeps `store` alive, too: the user's object may hold the server.
c10::intrusive_ptr<c10d::Store> keep_store(const std::string& prefix,
                                           c10::intrusive_ptr<c10d::Store> connection,
                                           c10::intrusive_ptr<c10d::Store> store);

// A c10d store as bootstrap sees it. Nothing here blocks more than half a second past `deadline`,
// or past the limit of a get, even if the store's server is stopped. Threads: one at a time.
// Failure: CommError with `context`: kTimeout, kPeerFailed (the connection is gone), kSystem (any
// other error of the store, with its text). After a call that did not return every later one fails
// at once.
class TC_API StoreKeyValue final : public bootstrap::KeyValue {
 public:
  // `address`: how error texts call the store; empty: store_address().
  StoreKeyValue(c10::intrusive_ptr<c10d::Store> store, bootstrap::Deadline deadline,
                Context context, const std::string& address = {});

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds limit) override;
  // The same; `look`, which runs 20 times a second meanwhile, may throw CommError to end the wait.
  std::string get(const std::string& key, std::chrono::milliseconds limit,
                  const std::function<void()>& look);
  bool has(const std::vector<std::string>& keys) override;
  int64_t add(const std::string& key, int64_t amount) override;
  void remove(const std::string& key) override;
  std::string address() const override { return address_; }

 private:
  template <class Call>
  auto run(const std::string& what, std::chrono::milliseconds limit, const Call& call);
  [[noreturn]] void does_not_answer(const std::string& what) const;
  void poll(const std::string& key, bootstrap::Deadline end);
  void reconnect() noexcept;
  std::chrono::milliseconds patience() const;

  Worker worker_;
  c10::intrusive_ptr<c10d::Store> store_;  // null after a call that did not return
  bootstrap::Deadline deadline_;
  Context context_;
  std::string address_;
  bool notifies_;  // a wait returns when the key comes; else keys are polled
};

}  // namespace torch::comms
