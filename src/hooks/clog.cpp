#include <torchcomms/hooks/clog.hpp>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <variant>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"
#include "hooks/call_log.hpp"
#include "hooks/clog_lines.hpp"
#include "hooks/hook_registrations.hpp"
#include "hooks/observer_call.hpp"

namespace torch::comms {
namespace {

// Returns: whether `names` contains one of `known`. Logs the names that are not known.
bool asks_for(const std::vector<std::string>& names, const std::vector<std::string>& known) {
  bool asked = false;
  for (const auto& name : names) {
    if (std::ranges::find(known, name) != known.end())
      asked = true;
    else
      base::log(base::LogLevel::kWarning,
                "clog: '" + name + "' is unknown and ignored, allowed is " + known.front());
  }
  return asked;
}

std::string join_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

}  // namespace

// The state of the hook. The communicators' hooks keep it alive after the hook object is destroyed.
struct ClogHook::State : std::enable_shared_from_this<State> {
  State(const std::string& output, bool events, bool buffers)
      : log(output), with_events(events), with_buffers(buffers) {}

  void add(const std::shared_ptr<TorchComm>& comm);

  CallLog log;
  const bool with_events, with_buffers;
  HookRegistrations registrations;
};

namespace {

// Logs the calls of one communicator. The communicator's hooks own it.
// Threads: the thread that calls the communicator.
template <class State>
class CommCallLogger {
 public:
  CommCallLogger(std::shared_ptr<State> state, const std::shared_ptr<TorchComm>& comm)
      : state_(std::move(state)), comm_(comm), name_(clog_name(comm->getCommName())) {
    log_membership();
    state_->log.on_comm_registered();
  }
  // The communicator was destroyed without finalize(), or the hook was unregistered.
  ~CommCallLogger() {
    if (!is_unregistered_)
      call_observer_noexcept("the call log", logged_, [&] { state_->log.on_comm_unregistered(); });
  }
  CommCallLogger(const CommCallLogger&) = delete;
  CommCallLogger& operator=(const CommCallLogger&) = delete;

  void pre(size_t op_id, const PreHookArgs& args) noexcept {
    call_observer_noexcept("the call log", logged_, [&] {
      log_membership();
      if (const auto* split = std::get_if<Split>(&args)) {
        split_ = {op_id, join_ranks(split->ranks)};
        return;
      }
      const std::string fields = clog_fields(args, state_->with_buffers);
      if (fields.empty()) return;
      const std::string op(opToString(getOpName(args)));
      call_ = {op_id, state_->log.log_issue(op + "|" + fields + "|comm=" + name_)};
    });
  }

  void post(size_t op_id, const PostHookArgs& args) noexcept {
    call_observer_noexcept("the call log", logged_, [&] {
      if (const auto* collective = std::get_if<CollectivePostHookArgs>(&args)) {
        track_work(op_id, collective->work);
      } else if (const auto* batch = std::get_if<BatchOpIssuePostHookArgs>(&args)) {
        track_work(op_id, batch->work);
      } else if (const auto* split = std::get_if<SplitPostHookArgs>(&args)) {
        const auto child = split->new_comm.lock();
        if (!child || split_.first != op_id) return;
        state_->log.line("split|parent=" + name_ + "|child=" + clog_name(child->getCommName()) +
                         "|ranks=" + split_.second);
        state_->add(child);
      } else if (std::holds_alternative<FinalizePostHookArgs>(args) &&
                 !std::exchange(is_unregistered_, true)) {
        state_->log.on_comm_unregistered();
      }
    });
  }

  // A communicator without members (before reconfigure()) has no rank to log.
  void log_membership() {
    const auto comm = comm_.lock();
    if (!comm || !comm->isConnected()) return;
    const auto membership = comm->getMembership();
    if (announced_ && membership == membership_) return;
    const std::string members = "|rank=" + std::to_string(comm->getRank()) +
                                "|world_size=" + std::to_string(comm->getSize());
    state_->log.line(announced_ ? "reconfigure|comm=" + name_ +
                                      "|uuid=" + std::to_string(membership.value_or(-1)) + members
                                : "new_comm|comm=" + name_ + members);
    announced_ = true;
    membership_ = membership;
  }

 private:
  void track_work(size_t op_id, const c10::weak_intrusive_ptr<TorchWork>& weak) {
    if (!state_->with_events || call_.first != op_id) return;
    const auto work = weak.lock();
    if (!work) return;
    const CallLog::LoggedCall call = call_.second;
    state_->log.track(call, name_);
    work->registerWorkStartHook([state = state_, call] { state->log.started(call); });
    work->registerWorkEndHook([state = state_, call] { state->log.ended(call); });
    work->registerWorkWaitPreHook([state = state_, call] { state->log.waited(call); });
  }

  std::shared_ptr<State> state_;
  std::weak_ptr<TorchComm> comm_;
  std::string name_;
  bool announced_ = false;
  std::optional<int64_t> membership_;
  bool is_unregistered_ = false;
  // The last operation whose pre-hook ran, by operation id.
  std::pair<size_t, CallLog::LoggedCall> call_{kFinalizeOpId, {}};
  std::pair<size_t, std::string> split_{kFinalizeOpId, ""};
  std::atomic<bool> logged_{false};
};

}  // namespace

void ClogHook::State::add(const std::shared_ptr<TorchComm>& comm) {
  const auto member = std::make_shared<CommCallLogger<State>>(shared_from_this(), comm);
  if (registrations.has(comm))
    throw CommError(Errc::kInvalidArgument, "the communicator is registered with this clog already",
                    {.op = "register_with_comm", .comm = std::string(comm->getCommName())});
  HookRegistrations::Handles handles;
  handles.push_back(comm->registerPreHook(
      [member](size_t op_id, const PreHookArgs& args) { member->pre(op_id, args); }));
  handles.push_back(comm->registerPostHook(
      [member](size_t op_id, const PostHookArgs& args) { member->post(op_id, args); }));
  registrations.add(comm, std::move(handles));
}

ClogHook::ClogHook(const std::string& output, const std::vector<std::string>& events,
                   const std::vector<std::string>& verbose)
    : state_(std::make_shared<State>(output, asks_for(events, {"LIFECYCLE", "ALL"}),
                                     asks_for(verbose, {"buffers"}))) {}

void ClogHook::registerWithComm(const std::shared_ptr<TorchComm>& comm) {
  require_comm(comm);
  state_->add(comm);
}

void ClogHook::unregister() { state_->registrations.remove_all(); }

}  // namespace torch::comms
