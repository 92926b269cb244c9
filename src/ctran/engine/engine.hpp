#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ctran/engine/control.hpp"
#include "ctran/engine/link_table.hpp"
#include "ctran/engine/progress.hpp"
#include "ctran/engine/scratch_pool.hpp"
#include "ctran/engine/task_pool.hpp"
#include "transport/closed_streams.hpp"

namespace torch::comms::ctran {

class CollectiveTask;
class Express;
class Membership;
struct Call;

// What a family is inside: it moves the calls of all groups over the links, and ends those that
// cannot go on.
//
// Threads: as marked; the rest with the lock of `progress`.
class Engine final : public Progress::Job, public std::enable_shared_from_this<Engine> {
 public:
  explicit Engine(LinkTable links, const FamilyOptions& options);
  ~Engine() override;

  // ---- any thread
  // Connects what is to be connected at once.
  void open();
  // The task is in the engine's hands from here on; it has the caller's reference besides.
  void submit(Task* task) noexcept;
  // The same, and looks at it at once. Its listener is told though nobody waits, where
  // Progress::need_thread() was called before.
  void start(Task* task) noexcept;
  // Returns when the task has ended. Throws what FamilyOptions::interrupt does. `entered`: with the
  // lock of `progress`, which it gives back.
  void wait(const Task& task, bool entered = false);
  // Sets the task's deadline, submits it and waits; at once where nothing else is under way.
  void run(Task* task);
  // The same for a collective that can go without a task, and has its engine to itself: true if it
  // has ended, well. Else nothing has happened; or all but its end, and `rest` is to be waited for
  // by wait(*rest, true). Throws CommError(kResourceExhausted), after which the group has failed.
  bool run_express(const std::shared_ptr<Membership>& group, const Call& call, Task*& rest);
  void add(const std::shared_ptr<Membership>& group);
  // Ends what is in flight, tells the members, and forgets it.
  void remove(const std::shared_ptr<Membership>& group) noexcept;
  // Nothing is called any more: tells the members when nothing but waits for them is in flight.
  void depart(Membership& group) noexcept;
  // Nothing on this rank's device writes to the others' any more: they learn of it.
  void rest(Membership& group) noexcept;
  void attend_to_aborts() noexcept;
  // Throws CommError(kForked) in a forked child.
  void require_own_process(std::string_view op) const;
  // Streams for a new group, beginning at the same number on all of its members: each proposes one,
  // all claim the largest, and begin anew where one could not, because another group has it. The
  // more often it has `failed`, the further ahead a proposal is, by a step that `parent`, the base
  // of the group that is split, decides: so two that are made at the same time do not meet again.
  // What is claimed is never free again, nor is what lies far behind.
  uint32_t propose_streams(int failed, uint32_t parent = 0) noexcept;
  bool claim_streams(uint32_t base) noexcept;
  // Closes the links: all groups fail with that, also those that are added later, and whatever is
  // submitted ends with it. The first reason counts.
  void shut_down(const CommError& why) noexcept;
  bool forked() const noexcept;
  // LinkTable::carriers(); "" in a forked child.
  std::string carriers();
  TaskPool& tasks() noexcept { return tasks_; }
  const LinkTable& table() const noexcept { return links_; }
  const Choose& choose() const noexcept { return choose_; }
  Progress& progress() noexcept { return progress_; }

  // ---- with the lock
  // The link to a rank of the family, connected if it was not. Throws CommError.
  transport::Transport& reach(int family_rank);
  // The stream of messages with a tag to a member; throws as set(). Of those from a member:
  // nothing before it has said that it sends any.
  uint32_t stream_to(Membership& group, int rank, int tag);
  std::optional<uint32_t> stream_from(const Membership& group, int rank, int tag) const;
  // A message with a member that has closed the group is on its way: what fails for that member
  // waits until it has arrived.
  bool is_draining(const Membership& group) const noexcept;
  ScratchPool scratch;

  bool turn() noexcept override { return turn(std::nullopt); }
  bool has_news() noexcept override;
  Deadline next_deadline() const noexcept override { return next_deadline_; }
  std::span<transport::Transport* const> links() const noexcept override { return links_.active(); }
  bool needs_turns() const noexcept override;
  bool has_endings() const noexcept override { return untold_.load(std::memory_order_acquire); }
  void tell_endings() noexcept override;

 private:
  enum class Step : uint8_t { kBegin, kAdvance };
  // A call that has its engine to itself (alone.cpp).
  bool enter_alone(const Membership& group) noexcept;
  bool is_alone(const Membership& group) const noexcept;
  bool is_wanted() const noexcept;
  template <class Look>
  bool look_until_done(const Membership& group, int often, const Look& look);
  // `but`: messages of this stream are about to be taken at once: Transport::progress_except().
  bool turn(std::optional<uint32_t> but) noexcept;
  bool move_links(std::optional<uint32_t> but = std::nullopt) noexcept;
  void enlist(Task* task) noexcept;
  void end_alone(Task* task) noexcept;
  bool run_alone(Task* task) noexcept;
  bool go_on(const std::shared_ptr<Membership>& group, const Call& call, const Express& express,
             Task*& rest);

  bool take_inbox() noexcept;
  void accept(Task* task) noexcept;
  bool advance_all() noexcept;
  bool has_ended(Task* task, Step step) noexcept;
  void start_next(Membership& group) noexcept;
  void end(Task* task, std::unique_ptr<CommError> error) noexcept;
  void on_failure(Task* task) noexcept;
  void announce_departure(Membership& group) noexcept;
  void reach_all(const Membership& group) noexcept;
  static Notice notice_of_departure(const Membership& group);
  void watch(Deadline deadline) noexcept { next_deadline_ = std::min(next_deadline_, deadline); }
  bool listen() noexcept;
  bool welcome_guests() noexcept;
  bool check_deadlines() noexcept;
  bool check_aborts() noexcept;

  // Failures (failures.cpp).
  void fail(Membership& group, Errc code, const std::string& why,
            std::vector<int> culprits) noexcept;
  void fail_for_departed(Membership& group) noexcept;
  void on_rest(Membership& group, int from, const Notice& notice) noexcept;
  void end_what_is_done(Membership& group) noexcept;
  void bury() noexcept;
  void on_peer_failed(int family_rank, Errc code, const std::string& why) noexcept;
  void ask(Membership& group, const CollectiveTask& task) noexcept;
  void on_asked(Membership& group, int rank, const Notice& question) noexcept;
  void compare_with_questions(Membership& group) noexcept;
  void disagree(Membership& group, uint64_t sequence, const std::string& met = {}) noexcept;
  void answer(Membership& group) noexcept;
  void note_print(Membership& group, int rank, uint64_t sequence,
                  const Fingerprint& print) noexcept;
  void settle_disagreement(Membership& group) noexcept;
  void tell(Membership& group, const Notice& notice, int but = -1) noexcept;
  void send_notice(int family_rank, const Notice& notice) noexcept;
  void on_notice(int from, const Notice& notice) noexcept;
  void on_failed_there(Membership& group, int rank, const Notice& notice) noexcept;
  void on_departure(Membership& group, int rank, const Notice& notice) noexcept;
  bool has_calls(const Membership& group) const noexcept;

  // Tags of messages (tags.cpp).
  void on_tagged(Membership& group, int rank, const Notice& notice);
  void close_stream(uint32_t stream, Errc code) noexcept;
  void close_tags(Membership& group, Errc code) noexcept;

  // Where every rank is (inquiry.cpp).
  static constexpr const char* kClosed = "it has closed the communicator";
  static constexpr const char* kEnded = "its process or its link has ended";
  static constexpr const char* gone_by(Errc code) noexcept {  // of its link
    return code == Errc::kPeerFailed ? kEnded : "not to be reached from here";
  }
  void inquire(Membership& group, Errc code, std::string why, std::vector<int> culprits,
               uint64_t number) noexcept;
  void note_gone(Membership& group, int rank, const char* why) noexcept;
  void note_place(Membership& group, int rank, const RankProgress& place) noexcept;
  void conclude_if_complete(Membership& group) noexcept;
  static void add_ended(const monitor::ProgressReport& seen, std::vector<int>& culprits);
  void conclude(Membership& group) noexcept;
  void ask_all(Membership& group) noexcept;
  void end_hearing(Membership& group) noexcept;
  void on_question(Membership* group, int from, const Notice& question) noexcept;
  void on_answer(Membership& group, const Notice& answer) noexcept;

  LinkTable links_;
  Choose choose_;
  int eager_ranks_;
  std::chrono::milliseconds hearing_;
  std::function<void()> interrupt_;
  Progress progress_;
  TaskPool tasks_;
  Control control_;
  uint64_t fork_generation_;
  std::atomic<Task*> inbox_{nullptr};                                 // newest first
  std::atomic<bool> aborts_{false};                                   // a group wants one
  std::unordered_map<uint32_t, std::shared_ptr<Membership>> groups_;  // by base
  std::vector<Task*> active_;
  unsigned alone_ = 0;               // calls that found nobody at it
  std::vector<Membership*> dying_;   // failed in this turn: their calls are still to be ended
  std::mutex endings_mutex_;         // guards the next one
  std::vector<Task*> endings_;       // whose listeners are still to be told
  std::atomic<bool> untold_{false};  // there are some
  struct EarlyNotice {
    int from;
    Notice notice;
  };
  std::list<EarlyNotice> early_;          // for groups that this rank has not made yet
  transport::ClosedStreams removed_;      // of groups that it has had
  uint32_t tag_streams_ = 0;              // taken from this rank's range
  std::mutex streams_mutex_;              // guards the next two
  uint32_t next_proposed_, next_stream_;  // next_stream_: what lies before cannot be claimed
  std::vector<uint32_t> claimed_;         // from there on, ascending
  Deadline next_deadline_ = Deadline::max();
  unsigned turns_ = 0;
  bool unheard_ = false;                 // something came since the last look at notices
  bool overdue_ = false;                 // next_deadline_ has passed
  std::optional<CommError> why_closed_;  // set: the links are
  std::atomic<bool> closed_{false};      // so they are, or are about to be
};

}  // namespace torch::comms::ctran
