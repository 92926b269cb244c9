#include "backends/ctran/session.hpp"

#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "ctran/engine/world.hpp"

namespace torch::comms::ctran {
namespace {

using test::Rank;

// Uses the session on the thread of its own engine, while the communicator lets go of it.
struct SessionUser final : CompletionListener {
  std::mutex& mutex;
  std::shared_ptr<Session>& owner;
  std::latch has_it{1}, let_go{1}, done{1};
  std::thread::id thread;

  SessionUser(std::mutex& guard, std::shared_ptr<Session>& session)
      : mutex(guard), owner(session) {}
  void on_complete(const CommError*) noexcept override {
    thread = std::this_thread::get_id();
    {
      const SessionRef session_ref(mutex, owner);
      has_it.count_down();
      let_go.wait();
      EXPECT_FALSE(session_ref.get()->group->failure().has_value());
    }
    done.count_down();
  }
};

void use_and_release(Rank& self) {
  std::mutex mutex;
  auto owner = std::make_shared<Session>();
  owner->connected_links.link_context = self.group->link_context();
  owner->group = std::move(self.group);
  const std::weak_ptr<Session> ended = owner;
  SessionUser user(mutex, owner);
  auto work = owner->group->start(test::barrier(2), &user);
  self.sync();  // from here on rank 1 can join the barrier, and no thread of rank 0 waits
  user.has_it.wait();
  EXPECT_NE(user.thread, std::this_thread::get_id());
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(mutex);
    session = std::exchange(owner, nullptr);
  }
  end_session(std::move(session), /*may_block=*/true);
  EXPECT_FALSE(ended.expired());
  user.let_go.count_down();
  user.done.wait();
}

TEST(Session, IsNotEndedByTheThreadOfItsOwnEngine) {
  test::run({.size = 2}, [](Rank& self) {
    if (self.rank() == 0) {
      use_and_release(self);
    } else {
      self.sync();
      self.group->run(test::barrier(2));
    }
    self.sync();
  });
}

}  // namespace
}  // namespace torch::comms::ctran
