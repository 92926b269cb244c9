#include "tracing/recorder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <torchcomms/base/error.hpp>

#include "base/os/host.hpp"
#include "tracing/local_peers.hpp"
#include "tracing/recorder_space.hpp"
#include "tracing/ring_file.hpp"

namespace torch::comms::tracing {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string text = ::testing::TempDir() + "recorderXXXXXX";
    path_ = ::mkdtemp(text.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& at : fs::recursive_directory_iterator(path_))
      if (at.is_regular_file()) found.push_back(at.path());
    return found;
  }

 private:
  fs::path path_;
};

// What `body` is in a forked child: its exit status, or minus the signal that ended it.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    std::exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

base::OpRecord all_reduce(uint32_t comm, uint64_t order) {
  base::OpRecord op;
  op.comm = comm;
  op.matching_sequence = order;
  return op;
}

// Of so many other communicators, each with an operation under way.
void add_other_communicators(size_t count) {
  for (size_t i = 0; i < count; ++i)
    process_ring().record(
        {.op = all_reduce(record_communicator({.name = "another", .rank = 0, .size = 1}, ""), 1)});
}

void communicate(const Folder& folder, int size, int rank = 0, size_t other_communicators = 0) {
  ::setenv("TORCHCOMM_RECORDER_DIR", folder.path().c_str(), 1);
  ::setenv("MASTER_ADDR", "some/where", 1);
  ::setenv("MASTER_PORT", "29500", 1);
  add_other_communicators(other_communicators);
  const auto comm = record_communicator(
      {.name = "world", .backend = "b", .rank = rank, .size = size, .members = {0, 1}}, "ops x\n");
  process_ring().record({.op = all_reduce(comm, 1)});
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Recorder, TheRecordOfAKilledProcessIsInItsFile) {
  const Folder folder;
  EXPECT_EQ(in_child([&] {
              communicate(folder, 2);
              ::raise(SIGKILL);
            }),
            -SIGKILL);
  ASSERT_EQ(folder.files().size(), 1u);
  const auto path = folder.files()[0];
  EXPECT_EQ(path.parent_path().filename(), "some_where_29500");
  const std::string bytes = content(path);
  ASSERT_EQ(bytes.size(), process_ring().size_bytes());
  EXPECT_EQ(std::memcmp(bytes.data(), kMagic.data(), kMagic.size()), 0);
  const auto* row = reinterpret_cast<const CommRow*>(bytes.data() + sizeof(RingHeader));
  EXPECT_STREQ(row->name.data(), "world");
  EXPECT_EQ(row->last_started.load(), 1u);
  EXPECT_EQ(row->last_completed.load(), 0u);
  struct stat facts{};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

// A process beside, which has done `first` when this is there, and does `then` when it is told. It
// ends with this.
class Beside {
 public:
  template <class First, class Then>
  Beside(const First& first, const Then& then) {
    EXPECT_EQ(::pipe(here_) | ::pipe(there_), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(there_[1]);
      first();
      send_byte(here_);
      if (receive_byte(there_)) {
        then();
        send_byte(here_);
        receive_byte(there_);
      }
      ::_exit(0);
    }
    EXPECT_TRUE(receive_byte(here_));
  }
  template <class First>
  explicit Beside(const First& first) : Beside(first, [] {}) {}
  ~Beside() {
    ::close(there_[1]);
    ::waitpid(pid_, nullptr, 0);
    for (const int end : {here_[0], here_[1], there_[0]}) ::close(end);
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  // Returns when it has done it.
  bool go_on() const { return send_byte(there_) && receive_byte(here_); }

 private:
  static bool send_byte(const int (&ends)[2]) {
    const char byte = 0;
    return ::write(ends[1], &byte, 1) == 1;
  }
  static bool receive_byte(const int (&ends)[2]) {
    char byte = 0;
    return ::read(ends[0], &byte, 1) == 1;
  }

  int here_[2], there_[2];
  pid_t pid_ = -1;
};

TEST(Neighbours, ARankThatNewerCommunicatorsPushedOutDoesNotKnowWhoIsWhere) {
  const Folder folder;
  const Beside other([&] { communicate(folder, 2, /*rank=*/1); });
  EXPECT_EQ(in_child([&] {
              communicate(folder, 2, 0, kCommRows - 1);
              LocalPeerReader peers("world", 0, 2, 0);
              if (peers.format_status() != "called by rank 1 and this one") ::_exit(1);
              add_other_communicators(1);
              ::_exit(peers.format_status().empty() ? 0 : 2);
            }),
            0);
}

TEST(Neighbours, OfACommunicatorThatNewerOnesPushedOutThereNothingIsSaid) {
  const Folder folder;
  const Beside other([&] { communicate(folder, 2, /*rank=*/1, kCommRows - 1); },
                     [] { add_other_communicators(1); });
  EXPECT_EQ(in_child([&] {
              communicate(folder, 2);
              LocalPeerReader peers("world", 0, 2, 0);
              if (peers.format_status() != "called by rank 1 and this one") ::_exit(1);
              if (!other.go_on()) ::_exit(2);
              ::_exit(peers.format_status().empty() ? 0 : 3);
            }),
            0);
}

TEST(Neighbours, ARankWithItsRecordInMemorySeesThoseWithFiles) {
  const Folder folder;
  const Beside other([&] { communicate(folder, 2, /*rank=*/1); });
  EXPECT_EQ(
      in_child([&] {
        const rlimit small{65536, 65536};
        ::setrlimit(RLIMIT_FSIZE, &small);
        communicate(folder, 2);
        if (!recorder_file().empty()) ::_exit(1);
        ::_exit(LocalPeerReader("world", 0, 2, 0).format_status() == "called by rank 1 and this one"
                    ? 0
                    : 2);
      }),
      0);
}

TEST(Neighbours, OfSeveralAlikeTheOneOfThatIdentityIsSeen) {
  const Folder folder;
  const auto half = [](int rank, uint64_t identity) {
    record_communicator({.name = "half", .rank = rank, .size = 2, .identity = identity}, "");
  };
  const Beside other([&] {
    communicate(folder, 4, 3);
    half(1, 8);
    half(1, 7);
  });
  EXPECT_EQ(in_child([&] {
              communicate(folder, 4, 0);
              half(0, 7);
              half(0, 9);
              if (LocalPeerReader("half", 0, 2, 0, 7).read().size() != 1) ::_exit(1);
              ::_exit(LocalPeerReader("half", 0, 2, 0, 9).read().empty() ? 0 : 2);
            }),
            0);
}

TEST(Neighbours, RanksOfAnotherCommunicatorOfThatNameAreNotSeen) {
  const Folder folder;
  const auto half = [](int rank, std::vector<int> members) {
    process_ring().record({.op = all_reduce(record_communicator({.name = "half",
                                                                 .backend = "b",
                                                                 .rank = rank,
                                                                 .size = 2,
                                                                 .members = std::move(members)},
                                                                ""),
                                            1)});
  };
  const Beside other([&] {
    communicate(folder, 4, 3);
    half(1, {2, 3});
  });
  EXPECT_EQ(in_child([&] {
              communicate(folder, 4, 0);
              half(0, {0, 1});
              if (!LocalPeerReader("half", 0, 2, 0).read().empty()) ::_exit(1);
              half(0, {2, 3});
              ::_exit(LocalPeerReader("half", 0, 2, 0).read().size() == 1 ? 0 : 2);
            }),
            0);
}

TEST(Recorder, ACleanExitLeavesNothingAndAnotherOneItsFile) {
  const Folder folder;
  EXPECT_EQ(in_child([&] { communicate(folder, 1); }), 0);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_EQ(in_child([&] { communicate(folder, 2); }), 0);  // others may wait in it
  EXPECT_EQ(folder.files().size(), 1u);
}

TEST(Recorder, AForkedChildHasARingAndAFileOfItsOwn) {
  const Folder folder;
  const int code = in_child([&] {
    communicate(folder, 2);
    const std::string mine = recorder_file();
    const auto recorded = process_ring().recorded();
    const int inner = in_child([&] {
      if (process_ring().recorded() != 0 || !recorder_file().empty()) ::_exit(1);
      process_ring().record({});
      communicate(folder, 2);
      if (recorder_file() == mine || recorder_file().empty()) ::_exit(2);
      ::_exit(0);
    });
    if (process_ring().recorded() != recorded) ::_exit(10);
    ::_exit(inner);
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(folder.files().size(), 2u);
}

// A child that waited for a lock of another thread of its parent's would wait for ever.
TEST(Recorder, AChildForkedWhileOthersMakeCommunicatorsMakesOneToo) {
  const Folder folder;
  const int code = in_child([&] {
    communicate(folder, 1);
    std::atomic<bool> over{false};
    std::thread other([&] {
      while (!over) process_ring().end_communicator(record_communicator({.name = "x"}, ""), true);
    });
    int failed = 0;
    for (int i = 0; i < 200 && failed == 0; ++i)
      failed = in_child([&] {
        ::alarm(30);
        record_communicator({.name = "y"}, "");
        ::_exit(0);
      });
    over = true;
    other.join();
    ::_exit(failed == 0 ? 0 : 1);
  });
  EXPECT_EQ(code, 0);
}

TEST(Recorder, WithoutAFolderItGoesOnInMemory) {
  const Folder folder;
  std::ofstream(folder.path() + "/file") << "in the way";
  EXPECT_EQ(in_child([&] {
              ::setenv("TORCHCOMM_RECORDER_DIR", (folder.path() + "/file/deep").c_str(), 1);
              record_communicator({.name = "world"}, "");
              process_ring().record({});
              ::_exit(process_ring().recorded() == 1 && recorder_file().empty() ? 0 : 1);
            }),
            0);
  EXPECT_EQ(in_child([&] {
              ::setenv("TORCHCOMM_RECORDER_DIR", "off", 1);
              record_communicator({.name = "world"}, "");
              ::_exit(recorder_file().empty() ? 0 : 1);
            }),
            0);
}

TEST(Recorder, AFolderThatOthersMayWriteIsRefused) {
  const Folder folder;
  ::chmod(folder.path().c_str(), 0777);
  EXPECT_THROW(create_ring_file(folder.path(), "job", "name.ring", 4096), CommError);
}

TEST(RingFile, FilesWithoutOwnerAreReclaimedByAgeAndSize) {
  const Folder folder;
  const auto leave = [&](const std::string& name, int64_t age_s, int open = 1) {
    auto file = create_ring_file(folder.path(), "job", name, 1 << 16);
    auto* const header = new (file.bytes.data()) RingHeader;
    header->magic = kMagic;
    header->open_communicators = open;
    publish(file);
    const timespec at{std::time(nullptr) - age_s, 0};
    const timespec times[] = {at, at};
    EXPECT_EQ(::utimensat(AT_FDCWD, file.path.c_str(), times, 0), 0);
    return file;
  };
  const auto owned = leave("owned.ring", 1000);
  for (const auto& [name, age_s] :
       {std::pair("old.ring", 900), std::pair("middle.ring", 50), std::pair("young.ring", 10)}) {
    const auto left = leave(name, age_s);
    const auto nothing_open = leave(std::string("finalized_") + name, age_s, 0);
    ::munmap(nothing_open.bytes.data(), nothing_open.bytes.size());
    ::munmap(left.bytes.data(), left.bytes.size());  // as a process's end does
  }
  const auto names = [&] {
    std::vector<std::string> found;
    for (const auto& path : folder.files()) found.push_back(path.filename());
    std::ranges::sort(found);
    return found;
  };
  remove_orphaned_files(folder.path(), std::time(nullptr) - 500, 1 << 20);
  EXPECT_EQ(names(), (std::vector<std::string>{"middle.ring", "owned.ring", "young.ring"}));
  remove_orphaned_files(folder.path(), std::time(nullptr) - 500, 1 << 16);
  EXPECT_EQ(names(), (std::vector<std::string>{"owned.ring", "young.ring"}));
}

constexpr uint64_t kRing = 1'216'512;  // bytes, of the usual capacity

TEST(RingFile, AllFilesTogetherTakeATenthOfTheFileSystemAtMost) {
  RingFileQuota quota{.max_bytes = (64u << 20) / 10, .available_bytes = 64u << 20};
  EXPECT_EQ(quota.fitting_files(kRing), 5u);
  EXPECT_EQ(quota.full_reason(kRing), "");
  quota.owned_bytes = 5 * kRing;
  EXPECT_EQ(quota.fitting_files(kRing), 0u);
  EXPECT_NE(quota.full_reason(kRing).find("a tenth of the file system"), std::string::npos);
}

TEST(RingFile, FilesWithoutOwnerMakeRoomForOneThatHasOne) {
  RingFileQuota quota{.max_bytes = 6 * kRing,
                      .available_bytes = 10 * kRing,
                      .owned_bytes = kRing,
                      .orphaned_bytes = 5 * kRing};
  EXPECT_EQ(quota.fitting_files(kRing), 5u);
  EXPECT_EQ(quota.max_orphaned_bytes(kRing), 4 * kRing);
  quota.available_bytes = 6 * kRing;  // too little for a file that takes a tenth of it
  EXPECT_EQ(quota.max_orphaned_bytes(kRing), kRing);
  quota = {.max_bytes = UINT64_MAX, .available_bytes = UINT64_MAX};
  EXPECT_EQ(quota.max_orphaned_bytes(kRing), kMaxOrphanedBytes);
}

TEST(RingFile, ANewFileTakesATenthOfWhatIsFreeAtMost) {
  RingFileQuota quota{.max_bytes = 6 * kRing, .available_bytes = 11 * kRing};
  EXPECT_EQ(quota.fitting_files(kRing), 2u);
  quota.available_bytes = 10 * kRing - 1;
  EXPECT_EQ(quota.fitting_files(kRing), 0u);
  EXPECT_NE(quota.full_reason(kRing).find("a tenth of what is free"), std::string::npos);
}

TEST(RingFile, ASecondProcessCannotLockAFolderThatIsLocked) {
  const Folder folder;
  const auto lock = lock_folder(folder.path());
  EXPECT_THROW(lock_folder(folder.path()), CommError);
}

TEST(RingFile, AFileLargerThanTheLimitIsRefusedWithoutASignal) {
  const Folder folder;
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_DFL);
              const rlimit small{65536, 65536};
              ::setrlimit(RLIMIT_FSIZE, &small);
              communicate(folder, 2);
              ::_exit(in_memory_reason().find("ulimit -f") != std::string::npos ? 0 : 1);
            }),
            0);
  EXPECT_TRUE(folder.files().empty());
}

TEST(RingFile, AFileThatCannotBePublishedLeavesItsRingAndForkedChildrenWell) {
  const Folder folder;
  EXPECT_EQ(in_child([&] {
              const auto job = folder.path() + "/some_where_29500";
              const auto stem = base::host_name() + "-" + std::to_string(::getpid());
              fs::create_directory(job);
              std::ofstream(job + "/" + stem + ".ring") << "taken";
              for (int i = 1; i < 100; ++i)
                std::ofstream(job + "/" + stem + "." + std::to_string(i) + ".ring") << "taken";
              communicate(folder, 2);
              if (!recorder_file().empty() || in_memory_reason().empty()) ::_exit(1);
              ::_exit(in_child([] {
                process_ring().record({});
                ::_exit(0);
              }));
            }),
            0);
  EXPECT_EQ(folder.files().size(), 100u);
}

TEST(RingFile, TheAgeOfAFileIsThatOfItsNewestEvent) {
  const Folder folder;
  const auto leave = [&](const std::string& name, int64_t since_s) {
    auto file =
        create_ring_file(folder.path(), "job", name, sizeof(RingHeader) + 2 * sizeof(EventSlot));
    auto* const header = new (file.bytes.data()) RingHeader;
    header->magic = kMagic;
    header->open_communicators = 1;
    header->header_bytes = sizeof(RingHeader);
    header->slot_bytes = sizeof(EventSlot);
    header->slots = 2;
    header->next = 4;
    header->began_ns = 5'000'000'000;
    header->began_wall_ns = (std::time(nullptr) - 1000) * 1'000'000'000;
    auto* const slots = reinterpret_cast<EventSlot*>(file.bytes.data() + sizeof(RingHeader));
    new (slots + 1) EventSlot;
    slots[1].words[0] = header->began_ns + static_cast<uint64_t>(since_s) * 1'000'000'000;
    publish(file);
    const timespec at{std::time(nullptr) - 1000, 0};
    const timespec times[] = {at, at};
    EXPECT_EQ(::utimensat(AT_FDCWD, file.path.c_str(), times, 0), 0);
    ::munmap(file.bytes.data(), file.bytes.size());
  };
  leave("short.ring", 100);
  leave("long.ring", 990);
  remove_orphaned_files(folder.path(), std::time(nullptr) - 500, 1 << 20);
  const auto kept = folder.files();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].filename(), "long.ring");
}

TEST(RingFile, FilesOfOthersStayWhateverTheyAreCalled) {
  const Folder folder;
  fs::create_directory(folder.path() + "/own");
  for (const char* name : {"model.pt.new", "short.ring", "app.conf.new", "long.ring", "none.new"})
    std::ofstream(folder.path() + "/own/" + name) << std::string(name[0] == 'n'   ? 0
                                                                 : name[0] == 'l' ? 1 << 16
                                                                                  : 10,
                                                                 'x');
  auto left = create_ring_file(folder.path(), "job", "host-1.ring", 1 << 16);  // not published
  ::munmap(left.bytes.data(), left.bytes.size());
  remove_orphaned_files(folder.path(), std::time(nullptr) + 500, 0);
  EXPECT_EQ(folder.files().size(), 6u) << "its owner holds it";
  left.lock = {};
  remove_orphaned_files(folder.path(), std::time(nullptr) + 500, 0);
  EXPECT_EQ(folder.files().size(), 5u);
  EXPECT_FALSE(fs::exists(left.path + ".new"));
}

TEST(RingFile, WhoeverReclaimsDoesNotHinderWhoeverMakes) {
  const Folder folder;
  std::atomic<bool> made_all{false};
  std::thread other([&] {
    while (!made_all) remove_orphaned_files(folder.path(), std::time(nullptr) - 500, 1 << 20);
  });
  for (int i = 0; i < 300; ++i) {
    const auto file =
        create_ring_file(folder.path(), "job", "host-" + std::to_string(i) + ".ring", 4096);
    ::munmap(file.bytes.data(), file.bytes.size());
  }
  made_all = true;
  other.join();
}

TEST(RingFile, ANameThatIsTakenGetsANumber) {
  const Folder folder;
  auto first = create_ring_file(folder.path(), "job", "host-1.ring", 4096);
  publish(first);
  auto second = create_ring_file(folder.path(), "job", "host-1.ring", 4096);
  publish(second);
  EXPECT_EQ(fs::path(second.path).filename(), "host-1.1.ring");
  EXPECT_EQ(folder.files().size(), 2u);
}

}  // namespace
}  // namespace torch::comms::tracing
