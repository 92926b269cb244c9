#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "base/handles.hpp"
#include "base/listener.hpp"
#include "base/secret.hpp"
#include "side/ended_groups.hpp"
#include "side/link.hpp"
#include "side/member.hpp"
#include "transport/handshake_queue.hpp"

// The side channel: what ranks tell each other beside a library that moves their data and says
// little when something is wrong. Whose process has ended, where everybody is, whether all called
// the same. It costs an operation nothing; a thread of the process sleeps until somebody says
// something. On any host, over TCP.
namespace torch::comms::side {

class Family;

// A group of ranks as one of them sees it; of a communicator and each of its splits. Destroyed
// without close() it tells the others that this rank has failed.
//
// Threads: any. Nothing blocks, but checked(), disagreement(), await_alarm() and await_told(), and
// close() before that has returned.
class TC_API Circle {
 public:
  Circle(std::shared_ptr<Family> family, uint64_t group, std::vector<int> ranks, int rank,
         std::shared_ptr<const Diary> diary);
  ~Circle();
  Circle(const Circle&) = delete;
  Circle& operator=(const Circle&) = delete;

  // Members of this group, which all make the same one of them as their `count`th. `ranks`: of this
  // group, by rank there; with this rank.
  std::shared_ptr<Circle> split(const std::vector<int>& ranks, uint64_t count,
                                std::shared_ptr<const Diary> diary) const;
  // In good order: nothing is wrong, and this rank has nothing more to say. Hears nothing more.
  void close() noexcept;
  // The first half of close(): this rank calls nothing more, but waits for what it has called, and
  // goes on hearing of those that close the group or fail. See Member::close().
  void depart(const std::vector<Posted>& posted, bool tells_all) noexcept;
  // Other members have closed the group. One load.
  bool has_departures() const noexcept { return departed_.load(std::memory_order_acquire); }
  std::map<int, Member::Departure> departures() const;

  // Something is wrong with the group: see failure(). One load.
  bool is_alarmed() const noexcept { return alarmed_.load(std::memory_order_acquire); }
  // Waits for that, `limit` at most; whether it is so.
  bool await_alarm(std::chrono::milliseconds limit) const;
  // Reads what others have said and nobody has read, as after this process has been stopped, over
  // the connections that stand: whoever goes on first then knows what they know.
  void catch_up();
  // kPeerFailed: a rank has failed; kMismatch: ranks called different things; or why another rank
  // has ended the communicator. Without context.
  struct Failure {
    Errc code;
    std::string why;
    std::vector<int> culprits;
    Moment ends = kNever;  // since when it is known that another one ends it
  };
  std::optional<Failure> failure() const;
  // See Member.
  void compare(Moment began);
  // Ranks are known to disagree: who calls what, which all are told then. `patience`: for those who
  // have not called yet, without whom it may not be known who are few. Nothing where it is not
  // found within `limit` from then.
  std::optional<Failure> disagreement(std::chrono::milliseconds patience,
                                      std::chrono::milliseconds limit);
  // What ask() of Member came to; nothing while the others are asked, half a second at most.
  std::optional<Member::Report> ask();
  // This rank ends the communicator: all others hear so, or that another one does. False: there is
  // nobody to tell any more.
  bool tell_end(const Ending& why);
  // After that, once: returns when all that can have heard it, after `limit` at most.
  void await_told(std::chrono::milliseconds limit);
  // Tells that this rank is about to begin a collective, and waits until all others are: true if
  // all call the same, false if that is not known after `tick`, or there is a failure().
  void check(uint64_t number);
  bool checked(uint64_t number, std::chrono::milliseconds tick);

 private:
  friend class Family;
  void end(bool well) noexcept;

  const std::shared_ptr<Family> family_;
  const uint64_t group_;
  const std::vector<int> ranks_;  // of the family, by rank here
  const std::shared_ptr<const Diary> diary_;
  std::map<int, int> near_;  // ranks here of the neighbours, by rank of the family
  std::atomic<bool> alarmed_{false}, departed_{false};
  Member member_;  // guarded by the family's lock, as all below
  bool ended_ = false;
  bool has_told_ = false;  // that this rank has closed the group
  int telling_ = 0;        // ends that are told, and nobody knows of yet that they are heard
};

// The ranks that start together, and the connections between them: those that groups of theirs
// need, which stay. Ends with its last group.
//
// Threads: any.
class TC_API Family : public std::enable_shared_from_this<Family> {
 public:
  struct Told {
    std::vector<std::string> blobs;  // by rank
    base::Secret secret;
  };
  // Takes this rank's blob to all others.
  using Exchange = std::function<Told(std::string mine)>;
  // Collective. `interface`: to be reached at, see base::choose_addresses(). Throws CommError:
  // kResourceExhausted, kSystem, kMismatch, kInvalidArgument, and what `exchange` throws.
  static std::shared_ptr<Family> make(int rank, int size, const std::string& interface,
                                      const Exchange& exchange, Member::Pace pace = {});
  ~Family();

  // The group of all; once.
  std::shared_ptr<Circle> everybody(std::shared_ptr<const Diary> diary);
  // Threads of this process, and descriptors at most: for notes.
  int connections() const;

 private:
  friend class Circle;
  Family() = default;
  struct Place {
    uint64_t instance = 0;
    std::string who, contact;
  };
  struct Guest {
    transport::tcp::PendingTcpConnection caller;
    Moment since;
    int socket() const noexcept { return caller.socket(); }
  };
  void run();
  void turn(std::unique_lock<std::mutex>& lock);
  void attend(int rank, Link& link, short events, Moment now);
  void catch_up();
  void accept_all(Moment now);
  bool welcome(Guest& guest, Moment now);
  Link& link_to(int rank, Moment now);
  void add(Circle& circle);
  void remove(Circle& circle, bool well) noexcept;
  void read(int from, Link& link, Moment now);
  void hand(Circle& circle, int from, const Note& note, Moment now);
  // With the lock: sends what `circle` has to say, and tells those who wait for it.
  void post(Circle& circle, const Member::Post& notes);
  bool has_unsent() const;
  void wake() const noexcept;
  static Moment now() { return std::chrono::steady_clock::now().time_since_epoch(); }

  int rank_ = 0;
  std::vector<Place> places_;  // by rank
  base::Secret secret_ = {};
  Member::Pace pace_;
  uint64_t fork_generation_ = 0;
  std::optional<base::Listener> listener_;
  base::FileDescriptor bell_;
  std::thread thread_;

  mutable std::mutex mutex_;  // guards all below; partner of changed_
  std::condition_variable changed_;
  std::map<int, std::unique_ptr<Link>> links_;  // by rank
  transport::HandshakeQueue<Guest> guests_{[this](Guest& guest) { return welcome(guest, now()); }};
  std::map<uint64_t, Circle*> circles_;
  struct Early {
    int from;
    Note note;
  };
  std::list<Early> early_;  // for groups that this rank has not made yet
  EndedGroups removed_;
  bool stopping_ = false;
};

}  // namespace torch::comms::side
