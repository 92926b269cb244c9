#include "core/work/hook_list.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "core/manual_backend.hpp"

namespace torch::comms {
namespace {

using List = HookList<std::function<void(std::string&)>>;

TEST(HookList, CallsInOrderOfRegistration) {
  List list;
  EXPECT_TRUE(list.empty());
  list.add([](std::string& out) { out += "a"; });
  list.add([](std::string& out) { out += "b"; });
  std::string out;
  list.call(std::ref(out));
  EXPECT_EQ(out, "ab");
}

TEST(HookList, AHookMayRemoveItselfWhileItRuns) {
  List list;
  uint64_t id = 0;
  id = list.add([&](std::string& out) {
    out += "once";
    list.remove(id);
  });
  list.add([](std::string& out) { out += "+"; });
  std::string out;
  list.call(std::ref(out));
  list.call(std::ref(out));
  EXPECT_EQ(out, "once++");
}

TEST(HookList, AHookAddedByAHookRunsFromTheNextCallOn) {
  List list;
  list.add([&](std::string& out) {
    out += "a";
    list.add([](std::string& later) { later += "b"; });
  });
  std::string out;
  list.call(std::ref(out));
  EXPECT_EQ(out, "a");
}

TEST(HookList, TheEndOfAHookMayChangeTheList) {
  struct Owner {
    List& list;
    uint64_t id;
    ~Owner() { list.remove(id); }
  };
  List list;
  auto owner = std::make_shared<Owner>(Owner{list, list.add([](std::string&) {})});
  const auto id = list.add([owner](std::string&) {});
  owner.reset();
  list.remove(id);
  EXPECT_TRUE(list.empty());
}

// Backends keep these two themselves.
TEST(BackendHooks, TheEndOfOneMayRemoveAnother) {
  struct Owner {
    std::function<void()> remove;
    ~Owner() { remove(); }
  };
  ManualBackend backend("hooks");
  int ran = 0;
  backend.registerAbortHook(1, [&ran] { ++ran; });
  auto owner = std::make_shared<Owner>([&] { backend.unregisterAbortHook(1); });
  backend.registerAbortHook(2, [owner] {});
  owner = std::make_shared<Owner>([&] { backend.unregisterGraphReplayHook(1); });
  backend.registerGraphReplayHook(2, [owner](auto&&...) {});
  owner.reset();
  backend.unregisterAbortHook(2);
  backend.unregisterGraphReplayHook(2);
  backend.fail();
  EXPECT_EQ(ran, 0);
}

TEST(HookList, AnExceptionLeavesAndSkipsTheRest) {
  List list;
  list.add([](std::string&) { throw std::runtime_error("no"); });
  list.add([](std::string& out) { out += "never"; });
  std::string out;
  EXPECT_THROW(list.call(std::ref(out)), std::runtime_error);
  EXPECT_EQ(out, "");
}

}  // namespace
}  // namespace torch::comms
