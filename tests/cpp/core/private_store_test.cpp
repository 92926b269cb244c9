#include "core/rendezvous/private_store.hpp"

#include <gtest/gtest.h>

#include <map>

#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

using std::chrono::seconds;

// In memory; the first write is interrupted.
class Interrupting final : public bootstrap::KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    if (writes_++ == 0) throw Interrupted(std::make_exception_ptr(std::string("out")));
    values_[key] = value;
  }
  std::string get(const std::string& key, std::chrono::milliseconds) override {
    const auto at = values_.find(key);
    if (at == values_.end()) throw CommError(Errc::kTimeout, "no " + key);
    return at->second;
  }
  bool has(const std::vector<std::string>& keys) override {
    return std::ranges::all_of(keys, [&](const auto& key) { return values_.contains(key); });
  }
  int64_t add(const std::string&, int64_t) override { return 0; }
  void remove(const std::string& key) override { values_.erase(key); }
  std::string address() const override { return "here"; }

 private:
  int writes_ = 0;
  std::map<std::string, std::string> values_;
};

TEST(PrivateStore, TheOthersAreToldThatRankZeroIsInterrupted) {
  Interrupting rendezvous_store;
  const bootstrap::Deadline deadline(seconds(20));
  EXPECT_THROW(
      publish_private_store(rendezvous_store, "key", "scope", "", seconds(20), deadline, {}),
      Interrupted);
  try {
    join_private_store(rendezvous_store, "key", "scope", seconds(20), deadline, {});
    FAIL() << "it has joined";
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kPeerFailed);
    EXPECT_EQ(e.why(), "rank 0 could not open the communicator's own store: interrupted");
  }
}

}  // namespace
}  // namespace torch::comms
