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
  struct LoggedCall {
    uint64_t signature;
    uint64_t work_id;
  };
  LoggedCall log_issue(const std::string& signature);

  // The operation has a work, whose events follow.
  void track(const LoggedCall& call, const std::string& comm);
  void started(const LoggedCall& call);
  void ended(const LoggedCall& call);
  void waited(const LoggedCall& call);

  // Communicators between their registration and their finalize(), or end, or the end of that.
  void on_comm_registered();
  // After the last one, whatever has not ended is written as leaked.
  void on_comm_unregistered();

 private:
  struct PendingCall {
    uint64_t signature;
    std::string comm;
    bool started = false;
  };
  void write(std::string_view text);  // mutex_ held
  void event(const LoggedCall& call, std::string_view letter);
  std::string elapsed() const;

  const std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;  // guards all below
  std::ofstream file_;
  bool failed_ = false;
  std::unordered_map<std::string, uint64_t> signatures_;
  uint64_t next_signature_ = 0;
  uint64_t next_work_ = 0;
  std::map<uint64_t, PendingCall> pending_;  // by work id; until their end
  int comm_count_ = 0;
};

}  // namespace torch::comms
