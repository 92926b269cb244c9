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

// The file of a ClogHook, and the numbers that its lines contain. The first line that cannot be
// written is reported in the log; later failures are silent.
// Threads: any.
class CallLog {
 public:
  // Throws: CommError(kSystem) if the file cannot be opened.
  explicit CallLog(const std::string& path);

  void line(std::string_view text);

  // Logs that an operation is issued: writes its signature if the text is new, and the Q line.
  struct LoggedCall {
    uint64_t signature;
    uint64_t work_id;
  };
  LoggedCall log_issue(const std::string& signature);

  // Starts to follow an operation that has a work, whose events come later.
  void track(const LoggedCall& call, const std::string& comm);
  void started(const LoggedCall& call);
  void ended(const LoggedCall& call);
  void waited(const LoggedCall& call);

  // Counts a communicator from its registration until it is finalized, destroyed or unregistered.
  void on_comm_registered();
  // Removes a communicator. After the last one, operations that have not ended are written as
  // leaked.
  void on_comm_unregistered();

 private:
  struct PendingCall {
    uint64_t signature;
    std::string comm;
    bool started = false;
  };
  void write(std::string_view text);  // requires mutex_
  void event(const LoggedCall& call, std::string_view letter);
  std::string elapsed() const;

  const std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;  // guards all members below
  std::ofstream file_;
  bool failed_ = false;
  std::unordered_map<std::string, uint64_t> signatures_;
  uint64_t next_signature_ = 0;
  uint64_t next_work_ = 0;
  std::map<uint64_t, PendingCall> pending_;  // operations that have not ended, by work id
  int comm_count_ = 0;
};

}  // namespace torch::comms
