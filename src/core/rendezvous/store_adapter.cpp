#include "core/rendezvous/store_adapter.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/os/log.hpp"
#include "base/os/system_error.hpp"
#include "core/work/interruptible_call.hpp"
#include "core/work/scoped_interrupt_check.hpp"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// The least time for a call near or without a deadline.
constexpr milliseconds kAnswerGrace{500};
// The time for the last store calls after the deadline: which ranks are missing, and why this rank
// leaves. On a busy host the store's server may not run for a second.
constexpr milliseconds kFinalWriteTimeout{2500};
// A call that takes longer than this may be waiting for a name server.
constexpr milliseconds kSlowReply{500};

// Gives access to the prefix, which c10d only shows to derived classes.
struct Prefix : c10d::PrefixStore {
  static const std::string& of(const c10d::PrefixStore& store) { return store.*&Prefix::prefix_; }
};

// The store below all prefixes, and the prefix of its keys.
struct StorePath {
  StorePtr root;
  std::string prefix;
};

StorePath path_of(StorePtr store) {
  std::string prefix;
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    prefix = Prefix::of(*prefixed) + "/" + prefix;
    store = prefixed->getUnderlyingStore();
  }
  return {std::move(store), std::move(prefix)};
}

// Returns: `store` with its prefixes over another root.
StorePtr over(const StorePtr& root, const StorePtr& store) {
  auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
  if (prefixed == nullptr) return root;
  return c10::make_intrusive<c10d::PrefixStore>(Prefix::of(*prefixed),
                                                over(root, prefixed->getUnderlyingStore()));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Returns: the host whose address the server of a TCPStore looks up; empty for other stores.
std::string root_host(const StorePtr& root) {
  const auto* tcp = dynamic_cast<const c10d::TCPStore*>(root.get());
  return tcp != nullptr ? tcp->getHost() : std::string();
}

}  // namespace

StorePtr root_store(const StorePtr& store) {
  auto root = path_of(store).root;
  if (const auto* polled = dynamic_cast<const PolledStore*>(root.get()))
    return polled->shared()->root();
  return root;
}

StorePtr tcp_root(const StorePtr& store) {
  auto root = root_store(store);
  return dynamic_cast<c10d::TCPStore*>(root.get()) != nullptr ? root : store;
}

std::string store_address(const StorePtr& store) {
  const StorePtr base = root_store(store);
  if (const auto* tcp = dynamic_cast<c10d::TCPStore*>(base.get()))
    return "tcp://" + tcp->getHost() + ":" + std::to_string(tcp->getPort());
  if (const auto* file = dynamic_cast<c10d::FileStore*>(base.get()))
    return "file " + file->getPath();
  if (dynamic_cast<c10d::HashStore*>(base.get()) != nullptr)
    return "the memory of this process (HashStore)";
  return "as passed to new_comm";
}

StorePtr share_store(const StorePtr& store, bootstrap::Deadline deadline, const Context& context) {
  // This reference keeps a connection alive that ensure_responsive() opens.
  const auto shared = SharedStore::of(path_of(store).root);
  StoreKeyValue(store, deadline, context).ensure_responsive();
  return over(c10::make_intrusive<PolledStore>(shared), store);
}

StoreKeyValue::StoreKeyValue(const StorePtr& store, bootstrap::Deadline deadline, Context context,
                             const std::string& address)
    : deadline_(deadline),
      context_(std::move(context)),
      address_(address.empty() ? store_address(store) : address) {
  auto place = path_of(store);
  shared_ = SharedStore::of(place.root);
  prefix_ = std::move(place.prefix);
}

milliseconds StoreKeyValue::timeout_with_grace() const {
  return deadline_.has_passed() ? kFinalWriteTimeout
                                : std::max(deadline_.remaining(), kAnswerGrace);
}

void StoreKeyValue::raise_unresponsive(const std::string& what) const {
  std::string why = "the store " + address_ + " did not answer (" + what + "): ";
  const auto slow = lookup_ ? lookup_->format_if_slow() : std::string();
  why += slow.empty()
             ? "its server is stopped, or the network swallows the messages"
             : slow +
                   ", for which the store waits at every connection: correct /etc/resolv.conf, "
                   "or set RES_OPTIONS='timeout:1 attempts:1'";
  throw CommError(Errc::kTimeout, why, context_);
}

void StoreKeyValue::raise(const std::string& what, const std::exception& e, bool is_late) const {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&e);
  const auto text = first_line(torch_error ? torch_error->what_without_backtrace() : e.what());
  const auto asked = "the store " + address_ + " (" + what + ")";
  if (const int ran_out = base::resource_errno_in(text); ran_out != 0)
    throw base::system_error(ran_out, asked, context_);
  if (is_late) throw CommError(Errc::kTimeout, asked + ": " + text, context_);
  if (dynamic_cast<const c10::DistError*>(&e) == nullptr)
    throw CommError(Errc::kSystem, asked + ": " + text, context_);
  throw CommError(
      Errc::kPeerFailed,
      "lost " + asked + ": " + text + ". See whether the process that serves it still runs",
      context_);
}

void StoreKeyValue::run(const std::string& what, milliseconds limit,
                        SharedStore::StoreOperation attempt) {
  if (is_stuck_) raise_unresponsive(what);
  const bootstrap::Deadline end(limit);
  const auto measure_if_slow = [this] {
    if (!lookup_ && shared_->busy_for() > kSlowReply) lookup_.emplace(root_host(shared_->root()));
  };
  try {
    switch (shared_->run(std::move(attempt), limit, measure_if_slow)) {
      case SharedStore::StoreCallStatus::kDone:
        return;
      case SharedStore::StoreCallStatus::kTimedOut:
        throw CommError(Errc::kTimeout,
                        "the store " + address_ + " (" + what + "): the key was not set within " +
                            bootstrap::format_duration(limit),
                        context_);
      case SharedStore::StoreCallStatus::kNoAnswer:
        is_stuck_ = true;
        raise_unresponsive(what);
    }
  } catch (const Interrupted&) {
    throw;
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& e) {
    raise(what, e, end.has_passed());
  }
}

// Calls the store once with the full name of `key`, and returns its result.
template <class Call>
auto StoreKeyValue::call(const std::string& what, const std::string& key, const Call& call) {
  using Result = std::invoke_result_t<Call, c10d::Store&, const std::string&>;
  const auto result = std::make_shared<std::optional<Result>>();
  run(what + " " + key, timeout_with_grace(),
      [result, call, whole = path(key)](c10d::Store& store) {
        result->emplace(call(store, whole));
        return true;
      });
  return std::move(**result);
}

void StoreKeyValue::ensure_responsive() {
  try {
    shared_->ensure_responsive(deadline_, context_);
  } catch (const Interrupted&) {
    throw;
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& e) {
    raise("check", e, deadline_.has_passed());
  }
}

void StoreKeyValue::set(const std::string& key, const std::string& value) {
  call("set", key, [value](c10d::Store& store, const std::string& whole) {
    store.set(whole, value);
    return true;
  });
}

std::string StoreKeyValue::get(const std::string& key, milliseconds limit) {
  const auto result = std::make_shared<std::string>();
  run("get " + key, limit, [result, whole = path(key)](c10d::Store& store) {
    const auto value = try_get(store, whole);
    if (value) result->assign(value->begin(), value->end());
    return value.has_value();
  });
  return std::move(*result);
}

std::string StoreKeyValue::get(const std::string& key, milliseconds limit,
                               const std::function<void()>& look) {
  const ScopedInterruptCheck check(look);
  try {
    return get(key, limit);
  } catch (const Interrupted& e) {
    try {
      e.rethrow_cause();
    } catch (const CommError&) {
      throw;
    } catch (...) {
      // An exception of the host language stays an interrupt.
    }
    throw;
  }
}

bool StoreKeyValue::has(const std::vector<std::string>& keys) {
  std::vector<std::string> whole;
  whole.reserve(keys.size());
  for (const auto& key : keys) whole.push_back(path(key));
  return call("check", keys.front(),
              [whole](c10d::Store& store, const std::string&) { return store.check(whole); });
}

int64_t StoreKeyValue::add(const std::string& key, int64_t amount) {
  return call("add", key, [amount](c10d::Store& store, const std::string& whole) {
    return store.add(whole, amount);
  });
}

void StoreKeyValue::remove(const std::string& key) {
  call("remove", key, [](c10d::Store& store, const std::string& whole) {
    // A key that cannot be removed is harmless: no rank reads it any more.
    const auto log_kept_key = [&whole](const std::exception& why) {
      base::log(base::LogLevel::kDebug, "the store keeps " + whole + ": " + why.what());
    };
    try {
      store.deleteKey(whole);
    } catch (const c10::NotImplementedError& e) {
      log_kept_key(e);
    } catch (const c10::Error&) {
      throw;  // torch's stores throw it if the server has ended
    } catch (const std::exception& e) {
      log_kept_key(e);  // such as a Python store without the method
    }
    return true;
  });
}

}  // namespace torch::comms
