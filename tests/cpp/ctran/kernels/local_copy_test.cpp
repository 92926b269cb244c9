#include "ctran/kernels/host/local_copy.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

// Where the copy of what a rank has for itself runs, and between what.
namespace torch::comms::ctran::kernels {
namespace {

// Streams and events are their names.
char call_stream[] = "call", side_stream[] = "side", forked[] = "forked", joined[] = "joined";
std::string name(const void* it) { return static_cast<const char*>(it); }

// What is enqueued, of which one step fails with 7.
struct Steps {
  std::vector<std::string> all;
  size_t wrong = SIZE_MAX;

  int add(const std::string& step) {
    all.push_back(step);
    return all.size() - 1 == wrong ? 7 : 0;
  }
};

struct Streams {
  Steps* steps;
  uint64_t of_call = 0, of_side = 0;  // captures
  int error = 0;                      // of asking for them

  int record(void* event, void* stream) const {
    return steps->add("record " + name(event) + " on " + name(stream));
  }
  int wait(void* stream, void* event) const {
    return steps->add(name(stream) + " waits for " + name(event));
  }
  int copy(const DeviceCopy&, void* stream) const {
    return steps->add("own copy on " + name(stream));
  }
  int copy_by_threads(const DeviceCopy&, void* stream) const {
    return steps->add("threads copy on " + name(stream));
  }
  int find_capture(void* stream, uint64_t& id) const {
    id = stream == side_stream ? of_side : of_call;
    return error;
  }
};

// Rank 1 of 3, with a side stream.
struct Launch {
  explicit Launch(Collective collective, size_t bytes = kForkMinBytes) : memory(1), input(1) {
    team.rank = 1;
    team.size = 3;
    call.call.collective = collective;
    call.call.dtype = Dtype::kUInt8;
    call.call.count = bytes;
    call.call.input = input.data();  // nothing is read or written
    call.call.output = memory.data();
    for (int rank = 0; rank < team.size; ++rank) {
      call.memory[rank] = memory.data();
      call.bytes[rank] = 3 * bytes;
    }
    call.copy_method = CopyMethod::kCopyEngine;
    call.side_stream = {side_stream, forked, joined};
  }

  int run(Steps& steps, Streams streams = {}) const {
    streams.steps = &steps;
    LocalCopy local_copy(call.side_stream, call_stream, streams);
    return launch_with_copy_engines(
        team, call, [&] { return steps.add("synchronize"); }, [&] { return steps.add("reduce"); },
        [&](const DeviceCopy&) { return steps.add("copy"); }, local_copy);
  }
  std::vector<std::string> enqueued(const Streams& streams = {}) const {
    Steps steps;
    EXPECT_EQ(run(steps, streams), 0);
    return steps.all;
  }

  std::vector<char> memory, input;
  TeamDescriptor team{};
  WindowCollectiveCall call{};
};

const std::vector<std::string> kBeside{
    "synchronize", "record forked on call", "side waits for forked", "threads copy on side", "copy",
    "copy",        "record joined on side", "call waits for joined", "synchronize"};
const std::vector<std::string> kOnTheCallsStream{"synchronize", "own copy on call", "copy", "copy",
                                                 "synchronize"};

TEST(OwnCopyTest, RunsBesideTheCopiesToPeersBetweenTheMeetings) {
  for (const auto collective : {Collective::kAllGather, Collective::kAllToAll})
    EXPECT_EQ(Launch(collective).enqueued(), kBeside);
}

TEST(OwnCopyTest, IsOnTheCallsStreamWhereItIsShortOrThereIsNoOther) {
  EXPECT_EQ(Launch(Collective::kAllGather, kForkMinBytes - 1).enqueued(), kOnTheCallsStream);
  Launch launch(Collective::kAllGather);
  launch.call.side_stream = {};
  EXPECT_EQ(launch.enqueued(), kOnTheCallsStream);
}

TEST(OwnCopyTest, InPlaceAndOfABroadcastThereIsNone) {
  Launch in_place(Collective::kAllGather);
  in_place.call.call.input = in_place.memory.data() + kForkMinBytes;
  EXPECT_FALSE(needs_side_stream(in_place.team, in_place.call));
  EXPECT_EQ(in_place.enqueued(),
            (std::vector<std::string>{"synchronize", "copy", "copy", "synchronize"}));
  const Launch broadcast(Collective::kBroadcast);
  EXPECT_FALSE(needs_side_stream(broadcast.team, broadcast.call));
  EXPECT_EQ(broadcast.enqueued(),
            (std::vector<std::string>{"synchronize", "synchronize", "copy", "synchronize"}));
}

TEST(OwnCopyTest, WantsASideStreamForWhatRunsBeside) {
  const auto wants = [](const Launch& launch) {
    return needs_side_stream(launch.team, launch.call);
  };
  EXPECT_TRUE(wants(Launch(Collective::kAllGather)));
  EXPECT_TRUE(wants(Launch(Collective::kAllToAll)));
  EXPECT_FALSE(wants(Launch(Collective::kAllGather, kForkMinBytes - 1)));
  EXPECT_FALSE(wants(Launch(Collective::kReduceScatter)));
  Launch launch(Collective::kAllGather);
  launch.call.copy_method = CopyMethod::kStores;
  EXPECT_FALSE(wants(launch));
  launch.call.copy_method = CopyMethod::kCopyEngine;
  launch.call.memory[1] = nullptr;
  EXPECT_FALSE(wants(launch)) << "makes no sense";
}

TEST(OwnCopyTest, JoinsTheCaptureOfTheCallAndNoOther) {
  const Launch launch(Collective::kAllGather);
  EXPECT_EQ(launch.enqueued({.steps = nullptr, .of_call = 5}), kBeside);
  EXPECT_EQ(launch.enqueued({.steps = nullptr, .of_call = 5, .of_side = 5}), kBeside)
      << "a second launch of the capture";
  EXPECT_EQ(launch.enqueued({.steps = nullptr, .of_call = 6, .of_side = 5}), kOnTheCallsStream);
  EXPECT_EQ(launch.enqueued({.steps = nullptr, .of_call = 0, .of_side = 5}), kOnTheCallsStream);
}

TEST(OwnCopyTest, AnErrorEndsTheLaunchButTheSideStreamIsJoined) {
  const Launch launch(Collective::kAllGather);
  const std::vector<std::string> join(kBeside.begin() + 6, kBeside.begin() + 8);
  for (size_t wrong = 0; wrong < kBeside.size(); ++wrong) {
    Steps steps;
    steps.wrong = wrong;
    EXPECT_EQ(launch.run(steps), 7);
    std::vector<std::string> want(kBeside.begin(),
                                  kBeside.begin() + static_cast<ptrdiff_t>(wrong) + 1);
    const bool is_forked = wrong > 2 && wrong < 6;
    if (is_forked) want.insert(want.end(), join.begin(), join.end());
    EXPECT_EQ(steps.all, want) << wrong;
  }
  Steps steps;
  EXPECT_EQ(launch.run(steps, {.steps = nullptr, .error = 9}), 9);
  EXPECT_EQ(steps.all, std::vector<std::string>{"synchronize"});
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
