#include "hooks/call_log.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"
#include "base/os/make_directories.hpp"

namespace torch::comms {
namespace {

// The maximum number of signatures that are remembered. Signatures with addresses may be many;
// after this number, a known signature is written again with a new number.
constexpr size_t kMaxSignatures = 65536;

std::string decimal(double seconds, int digits) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, seconds);
  return text.data();
}

}  // namespace

CallLog::CallLog(const std::string& path) : begin_(std::chrono::steady_clock::now()) {
  base::make_parent_directories(path);
  file_.open(path, std::ios::trunc);
  if (!file_)
    throw CommError(Errc::kSystem, "the call log '" + path +
                                       "' cannot be opened for writing: " + std::strerror(errno));
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  line("V|1|base_timestamp=" + decimal(now.count(), 3));
}

std::string CallLog::elapsed() const {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin_;
  return "+" + decimal(since.count(), 6);
}

void CallLog::write(std::string_view text) {
  file_ << text << '\n' << std::flush;
  if (file_ || failed_) return;
  failed_ = true;
  base::log(base::LogLevel::kError, "cannot write to the call log; later lines are dropped");
}

void CallLog::line(std::string_view text) {
  std::lock_guard lock(mutex_);
  write(text);
}

CallLog::LoggedCall CallLog::log_issue(const std::string& signature) {
  std::lock_guard lock(mutex_);
  if (signatures_.size() >= kMaxSignatures) signatures_.clear();
  const auto [row, is_new] = signatures_.try_emplace(signature, next_signature_);
  const std::string id = "C" + std::to_string(row->second);
  if (is_new) {
    ++next_signature_;
    write(id + "|sig|" + signature);
  }
  const LoggedCall call{row->second, next_work_++};
  write(id + "|Q|work_id=" + std::to_string(call.work_id) + "|" + elapsed());
  return call;
}

void CallLog::event(const LoggedCall& call, std::string_view letter) {
  write("C" + std::to_string(call.signature) + "|" + std::string(letter) + "|" + elapsed());
}

void CallLog::track(const LoggedCall& call, const std::string& comm) {
  std::lock_guard lock(mutex_);
  pending_.emplace(call.work_id, PendingCall{call.signature, comm});
}

void CallLog::started(const LoggedCall& call) {
  std::lock_guard lock(mutex_);
  if (const auto row = pending_.find(call.work_id); row != pending_.end())
    row->second.started = true;
  event(call, "S");
}

void CallLog::ended(const LoggedCall& call) {
  std::lock_guard lock(mutex_);
  pending_.erase(call.work_id);
  event(call, "E");
}

void CallLog::waited(const LoggedCall& call) {
  std::lock_guard lock(mutex_);
  if (pending_.contains(call.work_id))
    event(call, "W");
  else
    write("WARN|lifecycle event W for unknown work_id " + std::to_string(call.work_id));
}

void CallLog::on_comm_registered() {
  std::lock_guard lock(mutex_);
  ++comm_count_;
}

void CallLog::on_comm_unregistered() {
  std::lock_guard lock(mutex_);
  if (--comm_count_ > 0) return;
  for (const auto& [work_id, work] : pending_)
    write("WARN|comm=" + work.comm + "|leaked work_id=" + std::to_string(work_id) + "|corr_id=" +
          std::to_string(work.signature) + "|pending_events=" + (work.started ? "E" : "S,E"));
  pending_.clear();
}

}  // namespace torch::comms
