#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/handles.hpp"
#include "bootstrap/exchange/answer.hpp"
#include "bootstrap/exchange/dial.hpp"
#include "bootstrap/exchange/exchange.hpp"
#include "bootstrap/exchange/incoming.hpp"
#include "bootstrap/exchange/meeting.hpp"
#include "bootstrap/exchange/reception.hpp"
#include "bootstrap/exchange/registry.hpp"

namespace torch::comms::bootstrap {

inline Moment clock_now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// The question that is under way.
struct Outgoing {
  Dial dial;
  int round = 0;
  ReplyReader reader;
};

// One call of exchange_with_all(): the state machine, the store and the sockets of one rank.
class Meeting {
 public:
  Meeting(KeyValueStore& store, const Participant& self);
  // What may keep this rank from taking part: throws CommError, and no other rank knows.
  void prepare();
  Exchanged run();

 private:
  using Kind = Action::Kind;

  // What the state machine wants: meeting.cpp.
  void act();
  void act_on(const Action& action);
  void ask(const Action& action);
  void drop_outgoing(bool to_try_another);
  void not_reached();
  void look_up_source(int peer);
  void probe(int peer);
  void queue_notice(uint32_t link, const Notice& notice);
  void tell_source();
  Frame frame(FrameKind kind, int to, int round) const;

  // What comes from the sockets: meeting_sockets.cpp.
  // One turn: waits for something to happen, at most until then, and deals with all of it.
  void wait(Moment until);
  void accept_all();
  void on_incoming(uint32_t link, short events);
  void come_in(uint32_t link);
  void on_notice_bytes(Incoming& client, std::string_view bytes);
  void flush(uint32_t link);
  void drop(uint32_t link);
  void on_outgoing(short events);
  void on_reply(std::string_view bytes);
  void on_probe(int peer);
  void lose_outgoing(bool refused);
  void on_time();
  // The system has refused what a connection takes. Others of this process may give some back.
  void on_scarcity(int error, const std::string& what);
  [[noreturn]] void give_up();

  KeyValueStore& store_;
  Registry registry_;
  const Participant& self_;
  Pace pace_;
  Exchanged result_;
  Door door_;
  base::FileDescriptor listener_;
  std::string contact_;                // of this rank
  std::vector<std::string> contacts_;  // of the source of each round, as it becomes known
  Exchange machine_;
  std::unique_ptr<Reception> reception_;
  std::map<uint32_t, Incoming> incoming_;
  std::unique_ptr<Outgoing> outgoing_;
  // Which address of a source is tried first. Hosts of a job are alike: at that where one was
  // reached the next one may be, too.
  size_t address_ = 0;
  std::map<int, Dial> probes_;
  uint32_t next_link_ = 1;
  Moment accept_again_{};
  Moment scarce_since_ = kNever;
  std::optional<CommError> own_;  // that ends the exchange: this rank's
  Actions actions_;
  std::string where_;
};

}  // namespace torch::comms::bootstrap
