#include "core/store_adapter.hpp"

#include <algorithm>
#include <thread>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/log.hpp"
#include "base/system_error.hpp"
#include "core/own_check.hpp"
#include "core/reach.hpp"
#include "core/tcp_store.hpp"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// What a call may take beyond its limit before it counts as stuck.
constexpr milliseconds kGrace{500};
// How long the store may take for what is asked and told once the limit has passed: who is missing,
// and why this rank leaves. A busy host may leave its server without a core for a second.
constexpr milliseconds kLastWords{2500};
// A store that is connected is there: a second connection needs no patience, but for a lost packet,
// which costs a second.
constexpr milliseconds kStillThere{1200};
// Between two tries.
constexpr milliseconds kPause{20};

StorePtr underlying(const StorePtr& store) {
  auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
  return prefixed != nullptr ? prefixed->getUnderlyingNonPrefixStore() : store;
}

// A prefix over the clone of a store, which keeps the store as well.
class KeptStore final : public c10d::PrefixStore {
 public:
  KeptStore(std::string prefix, StorePtr connection, StorePtr kept)
      : PrefixStore(std::move(prefix), std::move(connection)), kept_(std::move(kept)) {}

  StorePtr clone() override { return over(store_->clone()); }
  StorePtr over(StorePtr connection) const {
    return c10::make_intrusive<KeptStore>(prefix_, std::move(connection), kept_);
  }

 private:
  StorePtr kept_;
};

// FileStore's own wait looks once a second; a store of the user's is not known to do better.
bool wakes_waiters(const StorePtr& store) {
  const StorePtr base = underlying(store);
  return dynamic_cast<c10d::TCPStore*>(base.get()) != nullptr ||
         dynamic_cast<c10d::HashStore*>(base.get()) != nullptr;
}

// c10d would try for twice its timeout, and print every try.
void require_server(const StorePtr& store, bootstrap::Deadline deadline, const Context& context) {
  const auto* tcp = dynamic_cast<c10d::TCPStore*>(underlying(store).get());
  if (tcp == nullptr) return;
  try {
    reach(tcp->getHost(), tcp->getPort(),
          bootstrap::Deadline(std::min(kStillThere, deadline.left())), context);
  } catch (const CommError& e) {
    if (deadline.passed() || e.code() == Errc::kResourceExhausted) throw;
    throw CommError(
        Errc::kPeerFailed,
        "lost the store: " + e.why() + ". See whether the process that serves it still runs",
        context);
  }
}

// Which c10d shows to derived classes alone.
struct Prefix : c10d::PrefixStore {
  static const std::string& of(const c10d::PrefixStore& store) { return store.*&Prefix::prefix_; }
};

// As c10d's clone(), but for how long it tries, on a thread that may be left behind: c10d goes on
// for twice the store's own timeout. A store without connections is as good as another one.
StorePtr connect_again(const StorePtr& store) {
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    const auto inner = prefixed->getUnderlyingStore();
    auto connection = connect_again(inner);
    if (connection == inner) return store;
    if (const auto* kept = dynamic_cast<const KeptStore*>(prefixed))
      return kept->over(std::move(connection));
    return c10::make_intrusive<c10d::PrefixStore>(Prefix::of(*prefixed), std::move(connection));
  }
  const auto* tcp = dynamic_cast<c10d::TCPStore*>(store.get());
  if (tcp == nullptr) return store;
  return connect_store(tcp->getHost(), tcp->getPort(), kStillThere, tcp->getTimeout());
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string store_address(const StorePtr& store) {
  const StorePtr base = underlying(store);
  if (const auto* tcp = dynamic_cast<c10d::TCPStore*>(base.get()))
    return "tcp://" + tcp->getHost() + ":" + std::to_string(tcp->getPort());
  if (const auto* file = dynamic_cast<c10d::FileStore*>(base.get()))
    return "file " + file->getPath();
  if (dynamic_cast<c10d::HashStore*>(base.get()) != nullptr)
    return "the memory of this process (HashStore)";
  return "as passed to new_comm";
}

StorePtr own_connection(const StorePtr& store, bootstrap::Deadline deadline,
                        const Context& context) {
  const auto what = "cannot connect once more to the store " + store_address(store) + ": ";
  const auto check_server = [&] {
    if (!deadline.passed()) require_server(store, deadline, context);
  };
  while (true) try {
      check_server();
      // A server that ends meanwhile is one that c10d goes on to look for.
      return call_within(
          deadline.left() + kGrace, [store] { return connect_again(store); }, check_server);
    } catch (const StillRunning&) {
      throw CommError(Errc::kTimeout, what + "it does not answer", context);
    } catch (const c10::DistNetworkError& e) {
      // The server is there, and has too much to do.
      if (deadline.passed())
        throw CommError(Errc::kTimeout, what + first_line(e.what_without_backtrace()), context);
      std::this_thread::sleep_for(kPause);
    } catch (const c10::Error& e) {
      throw CommError(deadline.passed() ? Errc::kTimeout : Errc::kPeerFailed,
                      what + first_line(e.what_without_backtrace()), context);
    }
}

StorePtr tcp_root(const StorePtr& store) {
  auto root = underlying(store);
  return dynamic_cast<c10d::TCPStore*>(root.get()) != nullptr ? root : store;
}

StorePtr keep_store(const std::string& prefix, StorePtr connection, StorePtr store) {
  return c10::make_intrusive<KeptStore>(prefix, std::move(connection), std::move(store));
}

StoreKeyValue::StoreKeyValue(StorePtr store, bootstrap::Deadline deadline, Context context,
                             const std::string& address)
    : store_(std::move(store)),
      deadline_(deadline),
      context_(std::move(context)),
      address_(address.empty() ? store_address(store_) : address),
      notifies_(wakes_waiters(store_)) {}

milliseconds StoreKeyValue::patience() const {
  return deadline_.passed() ? kLastWords : std::max(deadline_.left(), kGrace);
}

// A rank that is interrupted still has to tell the others, but its connection is busy waiting.
void StoreKeyValue::reconnect() noexcept {
  const StorePtr busy = std::exchange(store_, {});
  try {
    store_ = call_within(kGrace, [busy] { return connect_again(busy); });
  } catch (const std::exception&) {
    // Without a connection the next call says so.
  }
}

void StoreKeyValue::does_not_answer(const std::string& what) const {
  throw CommError(Errc::kTimeout,
                  "the store " + address_ + " did not answer (" + what +
                      "): its server is stopped, the network swallows the messages, or the store "
                      "waits for a name server (RES_OPTIONS='timeout:1 attempts:1' bounds that)",
                  context_);
}

template <class Call>
auto StoreKeyValue::run(const std::string& what, milliseconds limit, const Call& call) {
  if (!store_) does_not_answer(what);
  const bootstrap::Deadline end(limit);
  try {
    return worker_.run(limit + kGrace, [store = store_, call] { return call(*store); });
  } catch (const Interrupted&) {
    reconnect();
    throw;
  } catch (const StillRunning&) {
    store_.reset();
    does_not_answer(what);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& e) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&e);
    const auto text = first_line(torch_error ? torch_error->what_without_backtrace() : e.what());
    const auto asked = "the store " + address_ + " (" + what + ")";
    if (const int ran_out = base::scarcity_in(text); ran_out != 0)
      throw base::system_error(ran_out, asked, context_);
    if (end.passed()) throw CommError(Errc::kTimeout, asked + ": " + text, context_);
    if (dynamic_cast<const c10::DistError*>(&e) == nullptr)
      throw CommError(Errc::kSystem, asked + ": " + text, context_);
    throw CommError(
        Errc::kPeerFailed,
        "lost " + asked + ": " + text + ". See whether the process that serves it still runs",
        context_);
  }
}

void StoreKeyValue::set(const std::string& key, const std::string& value) {
  run("set " + key, patience(), [key, value](c10d::Store& store) { store.set(key, value); });
}

std::string StoreKeyValue::get(const std::string& key, milliseconds limit) {
  // c10d takes zero for "no limit".
  limit = std::max(limit, milliseconds(1));
  if (!notifies_) poll(key, bootstrap::Deadline(limit));
  return run("get " + key, limit, [key, limit](c10d::Store& store) {
    store.wait({key}, limit);
    return store.get_to_str(key);
  });
}

std::string StoreKeyValue::get(const std::string& key, milliseconds limit,
                               const std::function<void()>& look) {
  const OwnCheck check(look);
  try {
    return get(key, limit);
  } catch (const Interrupted& e) {
    try {
      e.rethrow_cause();
    } catch (const CommError&) {
      throw;
    } catch (...) {
      // The host language's: it stays what it is.
    }
    throw;
  }
}

void StoreKeyValue::poll(const std::string& key, bootstrap::Deadline end) {
  milliseconds pause{1};
  while (!has({key})) {
    if (end.passed())
      throw CommError(Errc::kTimeout, "the store " + address_ + ": no " + key + " within the limit",
                      context_);
    check_interrupt();
    std::this_thread::sleep_for(std::min(pause, end.left()));
    pause = std::min(pause * 2, milliseconds(20));
  }
}

bool StoreKeyValue::has(const std::vector<std::string>& keys) {
  return run("check " + keys.front(), patience(),
             [keys](c10d::Store& store) { return store.check(keys); });
}

int64_t StoreKeyValue::add(const std::string& key, int64_t amount) {
  return run("add " + key, patience(),
             [key, amount](c10d::Store& store) { return store.add(key, amount); });
}

void StoreKeyValue::remove(const std::string& key) {
  // Where it stays, nobody reads it any more.
  run("remove " + key, patience(), [key](c10d::Store& store) {
    const auto stays = [&key](const std::exception& why) {
      base::log(base::LogLevel::kDebug, "the store keeps " + key + ": " + why.what());
    };
    try {
      store.deleteKey(key);
    } catch (const c10::NotImplementedError& e) {
      stays(e);
    } catch (const c10::Error&) {
      throw;  // what stores of torch say of a server that is gone
    } catch (const std::exception& e) {
      stays(e);  // as a store in Python without the method
    }
  });
}

}  // namespace torch::comms
