#include "base/os/cache_info.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace torch::comms::base {
namespace {

class LastCacheFolder : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder()); }
  void TearDown() override { std::filesystem::remove_all(folder()); }
  static std::string folder() {
    return testing::TempDir() + "last_cache." + std::to_string(::getpid());
  }
  static void add(int index, const std::string& level, const std::string& type,
                  const std::string& size, const std::string& map) {
    const auto here = folder() + "/index" + std::to_string(index) + "/";
    std::filesystem::create_directories(here);
    std::ofstream(here + "level") << level << "\n";
    std::ofstream(here + "type") << type << "\n";
    std::ofstream(here + "size") << size << "\n";
    std::ofstream(here + "shared_cpu_map") << map << "\n";
  }
};

TEST_F(LastCacheFolder, IsTheOneOfTheHighestLevelWithAllCoresThatHaveIt) {
  add(0, "1", "Data", "32K", "00000000,00000001");
  add(1, "1", "Instruction", "64K", "00000000,00000001");
  add(2, "2", "Unified", "512K", "00000000,00000001");
  add(3, "3", "Unified", "32768K", "000000ff,000000ff");
  const auto found = read_last_level_cache(folder());
  EXPECT_EQ(found.bytes, size_t{32} << 20);
  EXPECT_EQ(found.cores, 16);
}

TEST_F(LastCacheFolder, IsUnknownWhereTheKernelSaysNothing) {
  EXPECT_EQ(read_last_level_cache(folder()).bytes, 0u);
  EXPECT_EQ(read_last_level_cache("/nonexistent").bytes, 0u);
  add(0, "what", "Data", "32K", "1");
  EXPECT_EQ(read_last_level_cache(folder()).bytes, 0u);
}

TEST(LastCache, IsTheSameEachTime) {
  EXPECT_EQ(&last_level_cache(), &last_level_cache());
  EXPECT_GE(last_level_cache().cores, 1);
}

TEST(LastCache, IsSharedByTheRanksOfItsCores) {
  const LastLevelCache cache{.bytes = size_t{32} << 20, .cores = 8};
  EXPECT_EQ(cache_sharers(cache, 8, 64), 1) << "a cache each";
  EXPECT_EQ(cache_sharers(cache, 64, 64), 8);
  EXPECT_EQ(cache_sharers(cache, 128, 64), 16);
  EXPECT_EQ(cache_sharers(cache, 2, 2), 2) << "other cores of it are not theirs";
  EXPECT_EQ(cache_sharers(cache, 1, 1), 1);
}

TEST(LastCache, HoldsAPartForEach) {
  const LastLevelCache usual{.bytes = size_t{32} << 20, .cores = 8},
      huge{.bytes = size_t{480} << 20, .cores = 96}, unknown{};
  EXPECT_TRUE(exceeds_cache_share(usual, 1, size_t{32} << 20));
  EXPECT_FALSE(exceeds_cache_share(usual, 1, size_t{31} << 20));
  EXPECT_TRUE(exceeds_cache_share(usual, 4, size_t{8} << 20));
  EXPECT_TRUE(exceeds_cache_share(huge, 1, size_t{64} << 20));
  EXPECT_FALSE(exceeds_cache_share(huge, 96, size_t{4} << 20));
  EXPECT_TRUE(exceeds_cache_share(unknown, 1, size_t{64} << 20));
}

TEST(LastCache, IsSharedByAsManyAsWereEverTold) {
  constexpr size_t kMany = size_t{1} << 30;
  size_t least = kMany;  // that exceeds it, by halves
  while (exceeds_last_level_cache(least / 2)) least /= 2;
  set_cache_sharers(1, 1);
  EXPECT_EQ(exceeds_own_cache_share(least / 2), exceeds_last_level_cache(least / 2));
  set_cache_sharers(8 * last_level_cache().cores, 1);
  set_cache_sharers(1, 1);
  EXPECT_TRUE(exceeds_own_cache_share(least / 2));
}

}  // namespace
}  // namespace torch::comms::base
