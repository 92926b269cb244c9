#include "ctran/selection/tuning.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include <torchcomms/base/error.hpp>

#include "ctran/selection/algorithm_selection.hpp"
#include "ctran/selection/shared_tuning.hpp"

namespace torch::comms::ctran {
namespace {

const std::string kHeader = "torchcomms tuning 1\n";
const std::string kWhole =
    kHeader +
    "# a machine\n\n"
    "cache near_bytes 2097152 far 1.5\r\n"
    "wire shm apart step_ns 1e2 message_ns 7.25 byte_ps 3 reduce_ps 0\n"
    "wire tcp crowded step_ns 1 message_ns 2 byte_ps 3 reduce_ps 4 # far\n"
    "use broadcast wire shm ranks 2..1048576 bytes 0..4611686018427387904 "
    "algorithm chain chunk_bytes 65536\n"
    "kernel all_reduce gpu nvidia-h200 ranks 2..4 bytes 0..131072 kind float mode eager "
    "algorithm one_shot_ll blocks 64\n"
    "kernel barrier gpu nvidia-h200 ranks 2..8 bytes 0..0 kind any mode any algorithm nccl blocks "
    "0\n"
    "use all_to_all wire shm ranks 2..2 bytes 5..5 algorithm bruck chunk_bytes 0";

std::string error_of(const std::string& text, Errc code = Errc::kInvalidArgument) {
  try {
    parse_tuning(text, "here");
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.why();
  }
  ADD_FAILURE() << "accepted: " << text;
  return {};
}

TEST(Tuning, ReadsWhatIsWrittenAndKeepsTheRest) {
  const Tuning tuning = parse_tuning(kWhole, "here");
  EXPECT_EQ(tuning.source, "here");
  EXPECT_EQ(tuning.constants.cache_bytes, 2097152);
  EXPECT_EQ(tuning.constants.uncached_factor, 1.5);
  const auto& shm = tuning.constants.uncontended[static_cast<size_t>(LinkType::kShm)];
  EXPECT_EQ(shm.step_ns, 100);
  EXPECT_EQ(shm.message_ns, 7.25);
  EXPECT_EQ(shm.reduce_ps, 0);
  EXPECT_EQ(tuning.constants.oversubscribed[static_cast<size_t>(LinkType::kTcp)].reduce_ps, 4);
  EXPECT_EQ(tuning.constants.oversubscribed[static_cast<size_t>(LinkType::kShm)].step_ns,
            kDefaultConstants.oversubscribed[static_cast<size_t>(LinkType::kShm)].step_ns);
  ASSERT_EQ(tuning.overrides.size(), 2u);
  EXPECT_EQ(tuning.overrides[0].algorithm->name, "chain");
  EXPECT_EQ(tuning.overrides[0].ranks_max, 1 << 20);
  EXPECT_EQ(tuning.overrides[0].bytes_max, int64_t{1} << 62);
  EXPECT_EQ(tuning.overrides[0].chunk_bytes, 65536);
  ASSERT_EQ(tuning.kernels.size(), 2u);
  EXPECT_EQ(tuning.kernels[0].gpu, "nvidia-h200");
  EXPECT_EQ(tuning.kernels[0].row, (kernels::SelectionRow{kernels::Collective::kAllReduce,
                                                          {2, 4},
                                                          {0, 131072},
                                                          kernels::KernelAlgorithm::kOneShotLL,
                                                          64,
                                                          kernels::ElementKind::kFloat,
                                                          kernels::LaunchMode::kEager}));
  EXPECT_TRUE(tuning.kernels[1].row.uses_vendor_library);
}

TEST(Tuning, RowsOfKernelsAreForOneGpuAndSomeRanks) {
  const auto rows = parse_tuning(kWhole, "here").kernels;
  EXPECT_EQ(rows_for(rows, "nvidia-h200", 2).size(), 2u);
  EXPECT_EQ(rows_for(rows, "nvidia-h200", 8).size(), 1u);
  EXPECT_TRUE(rows_for(rows, "nvidia-h100", 2).empty());
  EXPECT_EQ(format_measured_gpus(rows),
            "nvidia-h200 with 2 to 4 ranks, nvidia-h200 with 2 to 8 ranks");
  EXPECT_EQ(to_word("NVIDIA H200 (141 GB)"), "nvidia-h200-141-gb");
  EXPECT_EQ(to_word(" -?"), "");
}

TEST(Tuning, LinesOfKernelsMaySayOfWhichTensorsTheyAreAndWithinHowManyBlocks) {
  const std::string begin =
      "kernel all_gather_single gpu h200 ranks 2..2 bytes 0..9 kind any mode any ";
  const auto line = begin + "algorithm region blocks 16 tensors registered within 24";
  const auto parsed = parse_tuning(kHeader + line, "here").kernels.at(0);
  EXPECT_TRUE(parsed.row.uses_window_collective);
  EXPECT_EQ(parsed.row.blocks, 16);
  EXPECT_EQ(parsed.row.memory, kernels::TensorMemory::kRegistered);
  EXPECT_EQ(parsed.row.block_limit, 24);
  EXPECT_EQ(to_text(parsed), line);
  const auto few = parse_tuning(kHeader + begin + "algorithm kernels blocks 0 within 8", "here");
  EXPECT_EQ(few.kernels.at(0).row.memory, kernels::TensorMemory::kAny);
  EXPECT_EQ(few.kernels.at(0).row.block_limit, 8);
  EXPECT_EQ(error_of(kHeader + begin + "algorithm region blocks 0"),
            "here, line 2, tensors: 'any'; allowed: registered, where algorithm is region");
  EXPECT_EQ(error_of(kHeader + begin + "algorithm kernels blocks 0 tensors mine"),
            "here, line 2, tensors: 'mine'; allowed: any, plain, registered");
  EXPECT_EQ(error_of(kHeader + begin + "algorithm kernels blocks 0 within 8 tensors plain"),
            "here, line 2, end of line: 'tensors plain'; allowed: nothing more");
}

TEST(Tuning, WhatRankZeroTellsIsReadAlike) {
  const auto shared = parse_shared_tuning(serialize_tuning({}, "some-gpu"));
  EXPECT_EQ(shared.gpu, "some-gpu");
  EXPECT_TRUE(shared.tuning.kernels.empty());
  const auto code_of = [](const std::string& text) -> std::optional<Errc> {
    try {
      parse_shared_tuning(text);
    } catch (const CommError& e) {
      return e.code();
    }
    return std::nullopt;
  };
  const TuningFile folder{.path = "/proc", .setting = "h"};
  EXPECT_EQ(code_of(serialize_tuning(folder, "gpu")), Errc::kInvalidArgument);
  EXPECT_EQ(code_of("gpu\n-"), Errc::kMismatch);
  EXPECT_EQ(code_of("gpu\n-4711 why"), Errc::kMismatch);
  EXPECT_EQ(code_of("gpu\n+torchcomms tuning 9"), Errc::kInvalidArgument);
  EXPECT_EQ(code_of("gpu"), Errc::kMismatch);
  EXPECT_EQ(code_of("gpu\n"), Errc::kMismatch);
}

TEST(Tuning, WrittenTextReadsBackToTheSame) {
  const std::string text = to_text(parse_tuning(kWhole, "here"));
  EXPECT_EQ(to_text(parse_tuning(text, "there")), text);
  EXPECT_EQ(to_text(parse_tuning(to_text(Tuning()), "x")), to_text(Tuning()));
}

TEST(Tuning, AnErrorNamesPlaceAndWhatIsAllowed) {
  EXPECT_EQ(error_of(""), "here, line 0, version: missing; allowed: torchcomms tuning 1");
  EXPECT_EQ(error_of("# only\n"), "here, line 1, version: missing; allowed: torchcomms tuning 1");
  EXPECT_EQ(error_of("torchcomms tuning 2\n"), "here, line 1, version: '2'; allowed: 1");
  EXPECT_EQ(error_of(kHeader + "wire ib apart"),
            "here, line 2, wire: 'ib'; allowed: self, shm, tcp");
  EXPECT_EQ(error_of(kHeader + "cache near_bytes 1 far 2000"),
            "here, line 2, far: '2000'; allowed: a number from 0 to 1000");
  EXPECT_NE(error_of(kHeader + "use all_reduce wire shm ranks 2..1")
                .find("here, line 2, ranks: '2..1'; allowed: <first>..<last>"),
            std::string::npos);
  EXPECT_EQ(
      error_of(kHeader + "use reduce_scatter wire shm ranks 1..1 bytes 0..0 algorithm two_shot"),
      "here, line 2, algorithm: 'two_shot'; allowed: direct, halving, ring");
  const std::string kernel = kHeader + "kernel ";
  EXPECT_EQ(error_of(kernel + "all_gather gpu"),
            "here, line 2, operation: 'all_gather'; allowed: all_reduce, all_gather_single, "
            "reduce_scatter_single, all_to_all_single, broadcast, reduce, gather_single, scatter, "
            "barrier");
  EXPECT_EQ(error_of(kernel + "all_reduce gpu H200"),
            "here, line 2, gpu: 'H200'; allowed: a model in lower case, such as nvidia-h200");
  const std::string moves = kernel + "broadcast gpu h200 ranks 2..2 bytes 0..1 kind ";
  EXPECT_EQ(error_of(moves + "float"), "here, line 2, kind: 'float'; allowed: any");
  EXPECT_EQ(error_of(moves + "any mode any algorithm kernels blocks 7"),
            "here, line 2, blocks: '7'; allowed: a whole number from 0 to 0");
  EXPECT_NE(error_of(kernel + "reduce gpu h200 ranks 2..9")
                .find("here, line 2, ranks: '2..9'; allowed: <first>..<last>"),
            std::string::npos);
  EXPECT_NE(error_of(kHeader + "use all_gather_single ranks").find("allowed: all_reduce, "),
            std::string::npos);
  EXPECT_EQ(error_of(kHeader + "cache near_bytes 1 far 2 more"),
            "here, line 2, end of line: 'more'; allowed: nothing more");
}

TEST(Tuning, NoTextThatIsAlmostRightIsTaken) {
  const std::string wire = "wire shm apart step_ns ";
  for (const std::string& line :
       {std::string("cache near_bytes 1 far 2\ncache near_bytes 1 far 2"), wire + "-1",
        wire + "nan", wire + "inf", wire + "1e10", wire + "0x10", wire + "1", std::string("hello"),
        std::string("use all_reduce wire shm ranks 0..1"),
        std::string("use all_reduce wire shm ranks 1"),
        std::string("use all_reduce wire shm ranks 1..99999999999999999999"),
        std::string("use all_reduce wire shm ranks 1..2 bytes -1..2")})
    error_of(kHeader + line);
}

TEST(Tuning, SizesAreBounded) {
  error_of(kHeader + std::string(kMaxTuningBytes, '#'), Errc::kTooLarge);
  std::string many = kHeader;
  for (size_t i = 0; i <= kMaxOverrides; ++i)
    many += "use reduce wire shm ranks 1..1 bytes 0..0 algorithm ring chunk_bytes 0\n";
  EXPECT_NE(error_of(many, Errc::kTooLarge).find("1024 lines"), std::string::npos);
  many = kHeader;
  for (size_t i = 0; i <= kMaxOverrides; ++i)
    many += "kernel reduce gpu x ranks 2..2 bytes 0..0 kind any mode any algorithm nccl blocks 0\n";
  EXPECT_NE(error_of(many, Errc::kTooLarge).find("1024 lines 'kernel'"), std::string::npos);
}

TEST(Tuning, AnyMutationIsReadOrRefusedInWords) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  int read = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = kWhole;
    for (size_t n = below(4) + 1; n > 0; --n) {
      if (text.empty()) break;
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, below(20) + 1);
          break;
        case 2:
          text.insert(at, text.substr(below(text.size()), below(30)));
          break;
        default:
          text.resize(at + 1);
      }
    }
    try {
      const Tuning tuning = parse_tuning(text, "mutated");
      EXPECT_EQ(to_text(parse_tuning(to_text(tuning), "again")), to_text(tuning));
      ++read;
    } catch (const CommError& e) {
      EXPECT_TRUE(e.why().starts_with("mutated")) << e.why();
      for (const char c : e.why()) EXPECT_TRUE(c >= ' ' && c <= '~') << e.why();
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

// Why a file cannot be read; fails where it can.
CommError error_of(const TuningFile& file) {
  try {
    ADD_FAILURE() << file.path << " was read: " << read_tuning_file(file);
  } catch (const CommError& e) {
    return e;
  }
  return CommError(Errc::kInternal, "no error");
}

// A file named by the variable, for as long as this lives.
class Named {
 public:
  explicit Named(const std::string& path) {
    ::setenv("TORCHCOMM_CTRAN_TUNING_FILE", path.c_str(), 1);
  }
  ~Named() { ::unsetenv("TORCHCOMM_CTRAN_TUNING_FILE"); }
};

TEST(TuningFile, IsTheOneThatTheVariableNames) {
  const auto path =
      std::filesystem::temp_directory_path() / ("tuning-test-" + std::to_string(::getpid()));
  const Named named(path);
  EXPECT_EQ(find_tuning_file().path, path);
  const auto error = error_of(find_tuning_file());
  EXPECT_EQ(error.code(), Errc::kInvalidArgument) << "named, so it must be there";
  EXPECT_TRUE(error.why().starts_with("TORCHCOMM_CTRAN_TUNING_FILE: ")) << error.why();
  EXPECT_NE(error.why().find(path.string() + " cannot be read: No such file"), std::string::npos)
      << error.why();
  std::ofstream(path) << kWhole;
  EXPECT_EQ(read_tuning_file(), kWhole);
  std::ofstream(path) << std::string(kMaxTuningBytes + 1, 'x');
  EXPECT_THROW(read_tuning_file(), CommError);
  std::filesystem::remove(path);
}

TEST(TuningFile, ADirectoryIsNoFile) {
  const Named named(std::filesystem::temp_directory_path());
  EXPECT_EQ(error_of(find_tuning_file()).code(), Errc::kInvalidArgument);
}

TEST(TuningFile, WhoseOpeningWouldWaitIsNoFile) {
  const auto path =
      std::filesystem::temp_directory_path() / ("tuning-fifo-" + std::to_string(::getpid()));
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  {
    const Named named(path);
    const auto error = error_of(find_tuning_file());
    EXPECT_EQ(error.code(), Errc::kInvalidArgument);
    EXPECT_NE(error.why().find("regular file"), std::string::npos) << error.why();
  }
  std::filesystem::remove(path);
  EXPECT_EQ(read_tuning_file({.path = "/dev/null", .setting = "a test"}), "");
}

TEST(TuningFile, OfAHintGoesFirst) {
  const Named named("/nowhere/by/variable");
  const auto file = find_tuning_file("ctran::tuning_file", "/nowhere/by/hint");
  EXPECT_EQ(file.path, "/nowhere/by/hint");
  EXPECT_TRUE(error_of(file).why().starts_with("hint ctran::tuning_file: "));
  EXPECT_EQ(find_tuning_file("ctran::tuning_file", "").path, "/nowhere/by/variable");
}

TEST(TuningFile, InTheUsualPlaceNeedNotBe) {
  EXPECT_EQ(read_tuning_file({.path = "/nowhere/usual", .setting = ""}), "");
}

// A damaged one, one of another version, or what is no file at all.
TEST(TuningFile, ThatCannotBeUsedIsNoneInTheUsualPlace) {
  const auto path =
      std::filesystem::temp_directory_path() / ("tuning-bad-" + std::to_string(::getpid()));
  const auto serialize_named = [&](const std::string& named_by) {
    return serialize_tuning({.path = path, .setting = named_by}, "gpu");
  };
  const auto why_of = [](const std::string& text) -> std::string {
    try {
      parse_shared_tuning(text);
    } catch (const CommError& e) {
      return e.why();
    }
    return "";
  };
  for (const std::string text :
       {"torchcomms tuning 2\n", "torchcomms tuning 1\nuse all_reduce w"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(parse_shared_tuning(serialize_named("")).tuning.source, Tuning().source);
    const auto why = why_of(serialize_named("hint x"));
    EXPECT_TRUE(why.starts_with("on rank 0: hint x: the tuning file " + path.string() + ", line "))
        << why;
  }
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(why_of(serialize_named("")), "");
  EXPECT_NE(why_of(serialize_named("hint x")).find(path.string() + " cannot be read"),
            std::string::npos);
  std::filesystem::remove(path);
}

TEST(TuningFile, ThatCannotBeUsedIsWarnedOfOnceByItsName) {
  const TuningFile folder{.path = "/dev", .setting = ""};
  const auto warnings = [&] {
    testing::internal::CaptureStderr();
    static_cast<void>(serialize_tuning(folder, "gpu"));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(warnings().find("the tuning file /dev cannot be read"), std::string::npos);
  EXPECT_EQ(warnings(), "");
}

TEST(TuningFile, TheUsualPathNamesTheProcessor) {
  const std::string path = find_tuning_file().path;
  if (std::getenv("HOME") == nullptr) GTEST_SKIP() << "no HOME";
  EXPECT_NE(path.find("/.cache/torchcomms/tuning-"), std::string::npos) << path;
  EXPECT_TRUE(path.ends_with(".txt"));
}

}  // namespace
}  // namespace torch::comms::ctran
