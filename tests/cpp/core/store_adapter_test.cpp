#include "core/rendezvous/store_adapter.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

StorePtr server() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

// A store of a user that implements what it must, and no more.
class SmallStore final : public c10d::HashStore {
 public:
  bool deleteKey(const std::string&) override {
    C10_THROW_ERROR(NotImplementedError, "no deleteKey");
  }
  bool check(const std::vector<std::string>&) override {
    throw std::runtime_error("disk on fire\nframe 1");
  }
};

std::string path() {
  return (std::filesystem::temp_directory_path() / ("tc_adapter_" + std::to_string(::getpid())))
      .string();
}

TEST(StoreKeyValue, DoesTheSameOnEveryStore) {
  for (const StorePtr& store :
       {StorePtr(c10::make_intrusive<c10d::HashStore>()),
        StorePtr(c10::make_intrusive<c10d::FileStore>(path(), 1)), server()}) {
    StoreKeyValue kv(store, Deadline(seconds(20)), {});
    kv.set("a", "1 \n \x01");
    EXPECT_EQ(kv.get("a", seconds(5)), "1 \n \x01");
    kv.set("empty", "");
    EXPECT_EQ(kv.get("empty", seconds(5)), "");
    EXPECT_TRUE(kv.has({"a", "empty"}));
    EXPECT_FALSE(kv.has({"a", "b"}));
    EXPECT_EQ(kv.add("n", 5), 5);
    EXPECT_EQ(kv.add("n", -7), -2);
    EXPECT_EQ(kv.add("big", int64_t{1} << 61), int64_t{1} << 61);
    kv.remove("a");
    kv.remove("never there");
    EXPECT_FALSE(kv.has({"a"}));
    try {
      kv.get("b", milliseconds(30));
      ADD_FAILURE();
    } catch (const CommError& e) {
      EXPECT_EQ(e.code(), Errc::kTimeout) << e.what();
      EXPECT_NE(e.why().find(kv.address()), std::string::npos) << e.what();
    }
    EXPECT_EQ(kv.add("n", 0), -2) << "a limit that passed leaves the store usable";
  }
  std::filesystem::remove(path());
}

TEST(StoreKeyValue, NamesTheStore) {
  const auto hash = c10::make_intrusive<c10d::HashStore>();
  EXPECT_EQ(store_address(hash), "the memory of this process (HashStore)");
  EXPECT_EQ(store_address(c10::make_intrusive<c10d::PrefixStore>("p", hash)), store_address(hash));
  EXPECT_EQ(store_address(c10::make_intrusive<c10d::FileStore>(path(), 1)), "file " + path());
  const auto tcp = server();
  EXPECT_EQ(store_address(tcp),
            "tcp://127.0.0.1:" + std::to_string(dynamic_cast<c10d::TCPStore&>(*tcp).getPort()));
  std::filesystem::remove(path());
}

TEST(StoreKeyValue, AStoreThatCannotRemoveKeepsTheKey) {
  StoreKeyValue kv(c10::make_intrusive<SmallStore>(), Deadline(seconds(20)), {});
  EXPECT_NO_THROW(kv.remove("k"));
}

// As one in Python whose class lacks the method.
class IncompleteStore final : public c10d::HashStore {
 public:
  bool deleteKey(const std::string&) override { throw std::runtime_error("pure virtual function"); }
};

TEST(StoreKeyValue, AKeyThatAStoreDoesNotRemoveStays) {
  StoreKeyValue kv(c10::make_intrusive<IncompleteStore>(), Deadline(seconds(20)), {});
  kv.set("k", "v");
  EXPECT_NO_THROW(kv.remove("k"));
  EXPECT_EQ(kv.get("k", seconds(1)), "v");
}

TEST(StoreKeyValue, AnErrorOfTheStoreKeepsItsFirstLine) {
  StoreKeyValue kv(c10::make_intrusive<SmallStore>(), Deadline(seconds(20)),
                   {.op = "new_comm", .comm = "c", .rank = 1});
  try {
    kv.has({"k"});
    FAIL();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kSystem);
    EXPECT_NE(e.why().find("disk on fire"), std::string::npos);
    EXPECT_EQ(e.why().find("frame 1"), std::string::npos);
    EXPECT_EQ(e.context().rank, 1);
  }
}

TEST(StoreKeyValue, AServerThatIsGoneIsAFailedPeer) {
  StorePtr served = server();
  StoreKeyValue kv(served->clone(), Deadline(seconds(20)), {});
  kv.set("k", "v");
  served.reset();
  try {
    kv.get("k", seconds(10));
    FAIL();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kPeerFailed);
    EXPECT_NE(e.why().find("lost the store tcp://127.0.0.1:"), std::string::npos) << e.what();
  }
}

TEST(ShareStore, KeepsThePrefixesAndTheObjectThatServes) {
  StorePtr served = server();
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>(
      "a", c10::make_intrusive<c10d::PrefixStore>("b", served));
  const StorePtr shared = share_store(prefixed, Deadline(seconds(10)), {});
  shared->set("k", std::string("v"));
  EXPECT_EQ(prefixed->get_to_str("k"), "v");
  EXPECT_EQ(StoreKeyValue(prefixed, Deadline(seconds(10)), {}).get("k", seconds(5)), "v");
  EXPECT_EQ(root_store(shared), served);
  served.reset();
  EXPECT_EQ(shared->clone()->get_to_str("k"), "v");
}

}  // namespace
}  // namespace torch::comms
