#include <sys/mman.h>

#include <atomic>

#include "base/os/handles.hpp"
#include "ctran/engine/reference.hpp"
#include "transport/connect/peer_connection.hpp"
#include "transport/processes.hpp"

// Ranks as processes, one of which is killed in the middle of an operation.
namespace torch::comms::ctran::test {
namespace {

using Clock = std::chrono::steady_clock;
using transport::Frame;
using transport::PeerConnection;

// Ends the process, as the system does, with the n-th frame that it sends or receives.
struct FrameLimit {
  int frames = -1;  // left; negative: it lives
  void count_frame() {
    if (frames >= 0 && frames-- == 0) ::kill(::getpid(), SIGKILL);
  }
};

class KillingConnection final : public PeerConnection {
 public:
  KillingConnection(std::unique_ptr<PeerConnection> inner, FrameLimit& frame_limit)
      : inner_(std::move(inner)), frame_limit_(frame_limit) {}
  unsigned channels() const noexcept override { return inner_->channels(); }
  uint32_t max_payload() const noexcept override { return inner_->max_payload(); }
  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t* borrowed) noexcept override {
    const bool sent = inner_->try_send(frame, payload, borrowed);
    if (sent) frame_limit_.count_frame();
    return sent;
  }
  ReceiveStatus receive(transport::FrameSink& sink) noexcept override {
    const auto received = inner_->receive(sink);
    if (received == ReceiveStatus::kSome) frame_limit_.count_frame();
    return received;
  }
  bool flush() noexcept override { return inner_->flush(); }
  bool has_unflushed() const noexcept override { return inner_->has_unflushed(); }
  const std::string& error_text() const noexcept override { return inner_->error_text(); }
  void cancel_writes(ConstBytes range) noexcept override { inner_->cancel_writes(range); }
  bool is_delivered() const noexcept override { return inner_->is_delivered(); }
  bool prepare_sleep(bool room) noexcept override { return inner_->prepare_sleep(room); }
  void finish_sleep() noexcept override { inner_->finish_sleep(); }
  void wake_peer() noexcept override { inner_->wake_peer(); }

 private:
  std::unique_ptr<PeerConnection> inner_;
  FrameLimit& frame_limit_;
};

constexpr int kRanks = 3, kVictim = 1;

void require(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

// When each rank raised, in memory that the processes share: nanoseconds of the steady clock.
struct RaiseTimes {
  std::atomic<int64_t> raised[kRanks] = {};
};

int64_t now_ns() { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// The operation again and again, until the victim's end, which is named.
void run_until_killed(EngineGroup& group, const Case& c, FrameLimit& frame_limit, int frames,
                      RaiseTimes& raise_times) {
  const bool victim = group.rank() == kVictim;
  Checked first(c, group.rank());
  group.run(first.call);
  require(first.right(), "wrong values before the kill");
  if (victim) {
    group.run(barrier(kRanks));
    frame_limit.frames = frames;
  }
  // Who only sends is done with thousands of calls before a victim without a core comes to its end.
  const auto until = Clock::now() + std::chrono::seconds(20);
  for (bool begins = true; Clock::now() < until; begins = false) {
    Checked again(c, group.rank());
    try {
      // A reset takes with it what the victim sent last, even of the barrier.
      if (begins && !victim) group.run(barrier(kRanks));
      group.run(again.call);
    } catch (const CommError& error) {
      raise_times.raised[group.rank()] = now_ns();
      const std::string text = error.what();
      require(error.code() == Errc::kPeerFailed, "not kPeerFailed: " + text);
      require(error.context().peer == kVictim, "another rank is named: " + text);
      require(text.find("rank 1") != std::string::npos, "it is not named in words: " + text);
      return;
    }
    require(again.right(), "an operation without an error has wrong values");
  }
  throw std::runtime_error("the victim lives for ever");
}

[[noreturn]] void run_rank(int rank, int socket, LinkPolicy links, const transport::Secret& job,
                           const Case& c, int frames, RaiseTimes& raise_times) {
  int status = 1;
  try {
    FrameLimit frame_limit;
    LinkContextOptions options;
    options.links = links;
    options.interface = "127.0.0.1";
    options.wrap = [&](int, std::unique_ptr<PeerConnection> channel) {
      return std::make_unique<KillingConnection>(std::move(channel), frame_limit);
    };
    const auto exchange = [&](std::string mine) {
      transport::test::write_text(socket, mine);
      std::vector<std::string> blobs;
      for (int peer = 0; peer < kRanks; ++peer) blobs.push_back(transport::test::read_text(socket));
      return blobs;
    };
    auto group =
        EngineGroup::world(LinkContext::create(rank, kRanks, job, exchange, options), "mortal");
    run_until_killed(*group, c, frame_limit, frames, raise_times);
    status = 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  ::_exit(status);
}

void kill_inside(LinkPolicy links, const Case& c, int frames) {
  const auto job = transport::random_secret();
  auto* shared = ::mmap(nullptr, sizeof(RaiseTimes), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const base::Mapping mapping(shared, sizeof(RaiseTimes));
  auto& raise_times = *new (shared) RaiseTimes;
  std::vector<int> sockets;
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    children.push_back(::fork());
    if (children.back() == 0) {
      for (const int other : sockets) ::close(other);
      ::close(pair[0]);
      run_rank(rank, pair[1], links, job, c, frames, raise_times);
    }
    ::close(pair[1]);
    sockets.push_back(pair[0]);
  }
  std::vector<std::string> blobs;
  for (const int socket : sockets) blobs.push_back(transport::test::read_text(socket));
  for (const int socket : sockets)
    for (const auto& blob : blobs) transport::test::write_text(socket, blob);
  const auto where = std::string(schedule::operation_name(c.operation)) + " of " +
                     std::to_string(c.counts[0]) + " elements a block, killed after " +
                     std::to_string(frames) + " frames";
  int64_t died_ns = 0;
  for (int left = kRanks; left > 0; --left) {
    int status = -1;
    const auto child = std::find(children.begin(), children.end(), ::waitpid(-1, &status, 0));
    ASSERT_NE(child, children.end());
    if (child - children.begin() == kVictim) {
      died_ns = now_ns();
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status << " in " << where;
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "rank " << child - children.begin() << " in " << where;
    }
  }
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_LT(raise_times.raised[rank] - died_ns, int64_t{1'000'000'000} * (kSanitized ? 5 : 1))
        << "rank " << rank << " in " << where;
  for (const int socket : sockets) ::close(socket);
}

class Death : public testing::TestWithParam<LinkPolicy> {};

TEST_P(Death, InsideEachCollectiveIsToldToAllWithinASecond) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread checker does not follow a fork of a program that had threads";
#endif
  for (const auto operation : kCollectives)
    for (const int64_t each : {10, 200'000}) {
      // The others need it: of one root it is the root, of many senders a sender.
      const bool from_root = operation == Operation::kBroadcast || operation == Operation::kScatter;
      const Case c{operation, from_root ? kVictim : 0, equal_counts(operation, kRanks, each),
                   ReduceOpCode::kSum};
      kill_inside(GetParam(), c, each == 10 ? 0 : 3);
    }
}

INSTANTIATE_TEST_SUITE_P(Links, Death, testing::Values(LinkPolicy::kShm, LinkPolicy::kTcp),
                         [](const auto& info) {
                           return info.param == LinkPolicy::kShm ? "shm" : "tcp";
                         });

}  // namespace
}  // namespace torch::comms::ctran::test
