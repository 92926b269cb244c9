#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "side/answers.hpp"
#include "side/note.hpp"

namespace torch::comms::side {

// On a clock that only grows; where it starts is the caller's.
using Moment = std::chrono::nanoseconds;
inline constexpr Moment kNever = Moment::max();

// What a rank has recorded of its calls in a group. Any thread; never blocks.
class Diary {
 public:
  virtual ~Diary() = default;
  // Number of the collective that it has called and that has not ended, the first one; 0: none.
  virtual uint64_t open() const = 0;
  // See HandshakeStatus. `number` may be 0: then only where it is counts.
  virtual Answer about(uint64_t number) const = 0;
};

// One rank's part in what the ranks of a group know of each other, without any input or output:
// events in, notes to neighbours (see graph.hpp) out. So that 100,000 of them fit into a test.
//
// - Who has failed is flooded: everybody hears of it once from each neighbour.
// - Who ends its communicator tells so in a question, so that it learns when all have heard.
// - A question is an echo [Segall, IEEE Trans. Inf. Theory 29(1), 1983]: it spreads over all
//   connections, and answers come together on the ways it came. Two messages a connection, and the
//   depth of the graph is how long it takes. Of questions at the same time one goes on and puts out
//   the others (echo with extinction; Tel, Introduction to Distributed Algorithms, 7.3), because
//   ranks that hang all want to know at once; its outcome is flooded. Whoever does not answer in
//   time is left out.
// - A check is a reduction to rank 0 on the tree, and word back.
//
// Threads: one at a time. Failure: never throws but for memory.
class Member {
 public:
  using Post = std::vector<std::pair<int, Note>>;  // to whom, in order

  struct Pace {
    std::chrono::milliseconds hearing{500};     // of a question, until its asker goes on without
    std::chrono::milliseconds first_look{200};  // from one comparison of a collective that stays
    std::chrono::milliseconds longest_look{10'000};  // open to the next; doubles
  };
  // `diary` and `pace` outlive it.
  Member(uint64_t group, int rank, int size, const Diary& diary, const Pace& pace);

  const std::vector<int>& neighbours() const noexcept { return neighbours_; }

  // ---- what this rank wants
  // Its open collective, which began at `began`, is late: whether all others that have called it
  // called the same. Often does nothing, because that was asked a moment ago.
  void compare(Moment began, Moment now, Post& out);
  // The same of one that is known not to be what all have called, at once. Does nothing while this
  // rank asks that.
  void suspect(Moment now, Post& out);
  // Where everybody is: report() within Pace::hearing. Does nothing while that is asked.
  void ask(Moment now, Post& out);
  // It ends its communicator: is_end_heard() when all others have heard that, or that another one
  // ends, or after Pace::hearing.
  void end(const Ending& why, Moment now, Post& out);
  // It is about to begin collective `number`: checked() when all have said so, and alike.
  void check(uint64_t number, Moment now, Post& out);
  // It calls nothing more, and tells so its neighbours, or all members. `posted`: with each member,
  // by rank; empty: not known. Goes on hearing of those that close the group or fail.
  void close(Post& out, const std::vector<Posted>& posted = {}, bool tells_all = false);

  // ---- what happens
  void on_note(int from, const Note& note, Moment now, Post& out);
  // `neighbour` has failed.
  void on_lost(int neighbour, Moment now, Post& out);
  void on_time(Moment now, Post& out);
  // When on_time() is next needed, at the latest.
  Moment next_time() const noexcept;

  // ---- what is known
  // The first rank that failed without closing the group before; -1: none.
  int lost() const noexcept { return lost_; }
  struct Mismatch {
    uint64_t number;
    std::string why;
    std::vector<int> culprits;
  };
  const std::optional<Mismatch>& mismatch() const noexcept { return mismatch_; }
  // What came of the last ask(), or of another rank's at about that time: where the ranks were, and
  // whose fault that seems to be.
  struct Report {
    std::string where;
    std::vector<int> culprits = {};
    Moment since{};
  };
  const std::optional<Report>& report() const noexcept { return report_; }
  uint64_t checked() const noexcept { return checked_; }
  // The first other rank that this one has heard of that it ends its communicator.
  struct End {
    int rank;
    Ending why;
    Moment since;
  };
  const std::optional<End>& ended() const noexcept { return ended_; }
  bool is_end_heard() const noexcept { return end_heard_; }
  // How another rank has closed the group.
  struct Departure {
    uint64_t last = 0;             // number of its last collective
    std::optional<Posted> posted;  // with this rank, where it has said so
  };
  // Of those that have told this rank of it, by rank.
  const std::map<int, Departure>& departures() const noexcept { return departures_; }

 private:
  struct Wave {
    Question question;
    int parent = -1;  // -1: this rank asks
    std::set<int> waits_for;
    Answers answers;
    Moment until{};
  };
  struct Check {
    Answers answers;
    std::set<int> heard;
    bool own = false;
  };
  Note note(Note::Kind kind) const;
  void tell_all(const Note& note, int but, Post& out) const;
  bool is_gone(int rank) const { return gone_.contains(rank); }
  void begin(Question::Aim aim, Moment now, Post& out, const Ending& why = {});
  void spread(Note asked, int parent, std::chrono::milliseconds patience, Moment now, Post& out);
  void on_ask(int from, const Note& asked, Moment now, Post& out);
  void hear(int from, Moment now, Post& out);
  void end_wave(Moment now, Post& out);
  void drop_wave();
  // True where `answers` show that ranks disagree about what `question` is about, or about one of
  // those before: everybody is told.
  bool disagrees(const Answers& answers, const Question& question, Moment now, Post& out);
  void publish(const Note& found, Moment now, Post& out);
  void on_found(int from, const Note& found, Moment now, Post& out);
  void keep(const Note& found, Moment now);
  void check_further(uint64_t number, Moment now, Post& out);
  void note_gone(int rank, Answer::State how, Moment now, Post& out);

  const uint64_t group_;
  const int rank_, size_;
  const Diary& diary_;
  const Pace& pace_;
  const std::vector<int> neighbours_;
  std::map<int, Answer::State> gone_;  // of those that are known to be
  std::map<int, Departure> departures_;
  int lost_ = -1;
  bool closed_ = false;

  std::optional<Wave> wave_;
  std::vector<Question> past_;  // the last few, whose late echoes mean nothing any more
  uint32_t serial_ = 0;
  Question last_found_ = {};
  Moment asked_until_ = kNever;  // of ask(): no report has come so far
  std::optional<Report> report_;
  std::optional<Mismatch> mismatch_;
  std::optional<End> ended_;
  std::optional<Errc> ends_;  // why this one does
  bool end_heard_ = false;
  // Of compare().
  Moment looked_at_ = kNever;  // what had begun then
  Moment next_look_{0};
  std::chrono::milliseconds between_looks_{0};
  Moment took_part_ = -std::chrono::hours(1);  // in somebody's question

  std::map<uint64_t, Check> checks_;
  uint64_t checked_ = 0;
};

}  // namespace torch::comms::side
