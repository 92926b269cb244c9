#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace torch::comms {

// The file of a ClogHook and what its lines count. Any thread. A line that cannot be written is
// logged once and then missing.
class CallLog {
 public:
  // Throws CommError(kSystem) where the file cannot be opened.
  explicit CallLog(const std::string& path);

  void line(std::string_view text);

  // An operation is issued: writes its signature where the text is new, and the Q line.
  struct Call {
    uint64_t signature;
    uint64_t work_id;
  };
  Call queue(const std::string& signature);

  // The operation has a work, whose events follow.
  void watch(const Call& call, const std::string& comm);
  void started(const Call& call);
  void ended(const Call& call);
  void waited(const Call& call);

  // Communicators between their registration and their finalize(), or end, or the end of that.
  void joined();
  // After the last one, whatever has not ended is written as leaked.
  void left();

 private:
  struct Watched {
    uint64_t signature;
    std::string comm;
    bool started = false;
  };
  void write(std::string_view text);  // mutex_ held
  void event(const Call& call, std::string_view letter);
  std::string elapsed() const;

  const std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;  // guards all below
  std::ofstream file_;
  bool failed_ = false;
  std::unordered_map<std::string, uint64_t> signatures_;
  uint64_t next_signature_ = 0;
  uint64_t next_work_ = 0;
  std::map<uint64_t, Watched> watched_;  // by work id; until their end
  int members_ = 0;
};

}  // namespace torch::comms
