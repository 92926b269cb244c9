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
struct Asking final : CompletionListener {
  std::mutex& mutex;
  std::shared_ptr<Session>& home;
  std::latch has_it{1}, let_go{1}, done{1};
  std::thread::id thread;

  Asking(std::mutex& guard, std::shared_ptr<Session>& session) : mutex(guard), home(session) {}
  void on_complete(const CommError*) noexcept override {
    thread = std::this_thread::get_id();
    {
      const SessionRef borrowed(mutex, home);
      has_it.count_down();
      let_go.wait();
      EXPECT_FALSE(borrowed.get()->group->failure().has_value());
    }
    done.count_down();
  }
};

void ask_and_let_go(Rank& self) {
  std::mutex mutex;
  auto home = std::make_shared<Session>();
  home->connected_links.link_context = self.group->link_context();
  home->group = std::move(self.group);
  const std::weak_ptr<Session> ended = home;
  Asking asking(mutex, home);
  auto work = home->group->start(test::barrier(2), &asking);
  self.meet();  // from here on the other one comes to it, and nobody waits here
  asking.has_it.wait();
  EXPECT_NE(asking.thread, std::this_thread::get_id());
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(mutex);
    session = std::exchange(home, nullptr);
  }
  end_session(std::move(session), /*may_block=*/true);
  EXPECT_FALSE(ended.expired());
  asking.let_go.count_down();
  asking.done.wait();
}

TEST(Session, IsNotEndedByTheThreadOfItsOwnEngine) {
  test::run({.size = 2}, [](Rank& self) {
    if (self.rank() == 0) {
      ask_and_let_go(self);
    } else {
      self.meet();
      self.group->run(test::barrier(2));
    }
    self.meet();
  });
}

}  // namespace
}  // namespace torch::comms::ctran
