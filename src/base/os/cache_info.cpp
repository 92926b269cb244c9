#include "base/os/cache_info.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <cstdint>
#include <exception>
#include <fstream>

namespace torch::comms::base {
namespace {

std::atomic<int> g_sharers{1};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Parses a size such as "32768K".
size_t bytes_of(const std::string& text) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return 0;
  switch (*end) {
    case 'K':
      return number << 10;
    case 'M':
      return number << 20;
    default:
      return number;
  }
}

// Counts the bits of a CPU mask such as "ff,000000ff".
int cores_of(const std::string& map) {
  int count = 0;
  for (const char c : map) {
    uint32_t digit = 0;
    if (std::from_chars(&c, &c + 1, digit, 16).ec == std::errc{}) count += std::popcount(digit);
  }
  return std::max(1, count);
}

}  // namespace

LastLevelCache read_last_level_cache(const std::string& folder) {
  LastLevelCache last;
  int last_level = 0;
  for (int index = 0;; ++index) {
    const std::string here = folder + "/index" + std::to_string(index) + "/";
    const auto level = static_cast<int>(bytes_of(first_line(here + "level")));
    if (level == 0) return last;
    if (level < last_level || first_line(here + "type") == "Instruction") continue;
    last_level = level;
    last = {bytes_of(first_line(here + "size")), cores_of(first_line(here + "shared_cpu_map"))};
  }
}

bool exceeds_last_level_cache(size_t bytes) noexcept {
  return exceeds_cache_share(last_level_cache(), 1, bytes);
}

void set_cache_sharers(int ranks, int cores) noexcept {
  const int sharers = cache_sharers(last_level_cache(), ranks, cores);
  int most = g_sharers.load(std::memory_order_relaxed);
  while (most < sharers &&
         !g_sharers.compare_exchange_weak(most, sharers, std::memory_order_relaxed)) {
  }
}

bool exceeds_own_cache_share(size_t bytes) noexcept {
  return exceeds_cache_share(last_level_cache(), g_sharers.load(std::memory_order_relaxed), bytes);
}

int cache_sharers(const LastLevelCache& cache, int ranks, int cores) noexcept {
  const int64_t sharers = int64_t{ranks} * cache.cores / std::max(1, cores);
  return static_cast<int>(std::clamp<int64_t>(sharers, 1, std::max(1, ranks)));
}

bool exceeds_cache_share(const LastLevelCache& cache, int sharers, size_t bytes) noexcept {
  constexpr size_t kMost = size_t{64} << 20;
  const size_t has = cache.bytes > 0 ? cache.bytes : kMost;
  return bytes >= std::min(kMost, has / static_cast<size_t>(sharers));
}

const LastLevelCache& last_level_cache() noexcept {
  static const LastLevelCache found = []() noexcept {
    try {
      const int core = std::max(0, ::sched_getcpu());
      auto reported =
          read_last_level_cache("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cache");
#ifdef _SC_LEVEL3_CACHE_SIZE
      if (reported.bytes == 0)
        reported.bytes = static_cast<size_t>(std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE)));
#endif
      return reported;
    } catch (const std::exception&) {  // no memory for the path
      return LastLevelCache{};
    }
  }();
  return found;
}

}  // namespace torch::comms::base
