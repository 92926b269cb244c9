#include "side/family.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/fork.hpp"
#include "base/host.hpp"
#include "base/interfaces.hpp"
#include "base/log.hpp"
#include "base/socket.hpp"
#include "base/system_error.hpp"
#include "side/graph.hpp"
#include "transport/byte_stream.hpp"

namespace torch::comms::side {
namespace {

using std::chrono::milliseconds;
using transport::tcp::TcpHello;

constexpr milliseconds kSilence{10'000};  // of a connection whose host has vanished
constexpr milliseconds kPatience{5'000};  // with a connection that does not say who it is
constexpr milliseconds kLinger{1'000};    // at the end, for what is still to be said
constexpr milliseconds kTelling{500};     // at the end, for a rank that has told of its own
constexpr milliseconds kLastLooks{50};    // at what is still to be said
constexpr milliseconds kLongest{60'000};  // that fits poll()
constexpr size_t kMostEarly = 1024;
constexpr uint64_t kEverybody = 1;

std::string own_contact(uint16_t port, const std::string& interface) {
  std::string contact;
  for (const auto& address :
       base::choose_addresses(base::interface_addresses(), interface).addresses)
    contact += (contact.empty() ? "" : " ") + base::format_address(address, port);
  return contact;
}

}  // namespace

std::shared_ptr<Family> Family::make(int rank, int size, const std::string& interface,
                                     const Exchange& exchange, Member::Pace pace) {
  std::shared_ptr<Family> made(new Family);
  made->rank_ = rank;
  made->pace_ = pace;
  made->fork_generation_ = base::fork_generation();
  made->bell_ = base::FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!made->bell_) throw base::system_error("eventfd of the side channel");
  uint16_t port = 0;
  made->listener_.emplace(base::listen_on_all_interfaces(port));
  const uint64_t instance = base::random_number();
  const auto told = exchange(transport::ByteWriter()
                                 .add(instance)
                                 .text(std::to_string(::getpid()) + " on " + base::host_name())
                                 .text(own_contact(port, interface))
                                 .release());
  made->secret_ = told.secret;
  for (const auto& blob : told.blobs) {
    transport::ByteReader reader(blob, "what a rank says of its side channel");
    auto& place = made->places_.emplace_back();
    place.instance = reader.number<uint64_t>();
    place.who = reader.text();
    place.contact = reader.text();
  }
  if (made->places_.size() != static_cast<size_t>(size))
    throw CommError(Errc::kMismatch, "not every rank said where its side channel is");
  try {
    made->thread_ = std::thread([family = made.get()] { family->run(); });
  } catch (const std::system_error& e) {
    throw CommError(Errc::kResourceExhausted,
                    std::string("no thread for the side channel: ") + e.what());
  }
  return made;
}

Family::~Family() {
  if (base::fork_generation() != fork_generation_) {
    // Neither thread nor descriptors are this process's to end.
    static_cast<void>(new std::thread(std::move(thread_)));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Circle> Family::everybody(std::shared_ptr<const Diary> diary) {
  std::vector<int> all(places_.size());
  std::iota(all.begin(), all.end(), 0);
  return std::make_shared<Circle>(shared_from_this(), kEverybody, std::move(all), rank_,
                                  std::move(diary));
}

int Family::connections() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count_if(
      links_, [](const auto& link) { return link.second->state() == Link::State::kUp; }));
}

void Family::wake() const noexcept {
  const uint64_t one = 1;
  // A write that fails found the counter full: the monitor thread wakes up anyway.
  [[maybe_unused]] const auto written = ::write(bell_.get(), &one, sizeof one);
}

// ---- groups

void Family::add(Circle& circle) {
  const std::lock_guard lock(mutex_);
  circles_[circle.group_] = &circle;
  const Moment at = now();
  for (const auto& [rank, near] : circle.near_)
    if (link_to(rank, at).state() == Link::State::kLost) {
      Member::Post out;
      circle.member_.on_lost(near, at, out);
      post(circle, out);
    }
  for (auto next = early_.begin(); next != early_.end();) {
    const auto early = next++;
    if (early->note.group != circle.group_) continue;
    hand(circle, early->from, early->note, at);
    early_.erase(early);
  }
  wake();
}

void Family::remove(Circle& circle, bool well) noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kTelling, [&circle] { return circle.telling_ == 0; });
  if (std::exchange(circle.ended_, true)) return;
  try {
    Member::Post out;
    if (std::exchange(circle.has_told_, true)) {
      // Nothing more.
    } else if (well) {
      circle.member_.close(out);
    } else {
      Note lost{.kind = Note::Kind::kLost, .group = circle.group_};
      for (const auto& [family_rank, near] : circle.near_) {
        lost.about =
            static_cast<int>(std::ranges::find(circle.ranks_, rank_) - circle.ranks_.begin());
        out.emplace_back(near, lost);
      }
    }
    post(circle, out);
    removed_.add(circle.group_);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning,
              std::string("side channel: the others are not told of an end: ") + error.what());
  }
  circles_.erase(circle.group_);
  changed_.notify_all();
  wake();
}

void Family::post(Circle& circle, const Member::Post& notes) {
  for (const auto& [to, note] : notes) {
    const int rank = circle.ranks_[static_cast<size_t>(to)];
    const bool fresh = !links_.contains(rank);
    auto& link = link_to(rank, now());
    if (fresh) link.call(now());
    link.say(note.serialize());
  }
  if (circle.member_.lost() >= 0 || circle.member_.mismatch() || circle.member_.ended())
    circle.alarmed_.store(true, std::memory_order_release);
  if (!circle.member_.departures().empty()) circle.departed_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void Family::hand(Circle& circle, int from, const Note& note, Moment at) {
  const auto size = static_cast<int>(circle.ranks_.size());
  const auto near = circle.near_.find(from);
  int rank = near == circle.near_.end() ? -1 : near->second;
  // A rank tells of its own end those, too, that are no neighbours of it.
  if (rank < 0 && note.kind == Note::Kind::kClosed) {
    const auto place = std::ranges::find(circle.ranks_, from);
    if (place != circle.ranks_.end()) rank = static_cast<int>(place - circle.ranks_.begin());
  }
  if (rank < 0) return;
  if (note.about >= size || note.question.asker >= size) return;
  if (std::ranges::any_of(note.culprits, [size](int rank) { return rank >= size; })) return;
  Member::Post out;
  circle.member_.on_note(rank, note, at, out);
  post(circle, out);
}

// ---- connections

Link& Family::link_to(int rank, Moment at) {
  auto& link = links_[rank];
  if (link) return *link;
  const auto& place = places_[static_cast<size_t>(rank)];
  TcpHello hello;
  hello.from = rank_;
  hello.to = rank;
  hello.instance = place.instance;
  hello.job = secret_;
  link = std::make_unique<Link>(place.contact, hello, rank_ < rank, at);
  return *link;
}

void Family::accept_all(Moment at) {
  while (auto socket = listener_->accept()) {
    base::set_keepalive_and_user_timeout(socket.get(), kSilence);
    static_cast<void>(guests_.add({transport::tcp::PendingTcpConnection(std::move(socket)), at}));
  }
}

bool Family::welcome(Guest& guest, Moment at) {
  using State = transport::tcp::PendingTcpConnection::State;
  const transport::tcp::TcpEndpointId door{rank_, places_[static_cast<size_t>(rank_)].instance,
                                           secret_};
  const auto state = guest.caller.read();
  if (state == State::kIncomplete) return at - guest.since >= kPatience;
  const auto& hello = guest.caller.hello();
  if (state == State::kComplete && why_not(hello, door) == nullptr)
    link_to(hello.from, at).take(guest.caller.release_socket());
  return true;
}

void Family::read(int from, Link& link, Moment at) {
  std::string text;
  while (link.next(text)) {
    try {
      auto note = Note::parse(text, static_cast<int>(places_.size()));
      const auto found = circles_.find(note.group);
      if (found != circles_.end()) {
        hand(*found->second, from, note, at);
      } else if (!removed_.contains(note.group)) {
        early_.push_back({from, std::move(note)});
        if (early_.size() > kMostEarly) early_.pop_front();
      }
    } catch (const CommError& error) {
      base::log(base::LogLevel::kWarning, "side channel: rank " + std::to_string(from) +
                                              " says what it should not: " + error.what());
    }
  }
}

bool Family::has_unsent() const {
  return std::ranges::any_of(links_, [](const auto& link) { return link.second->unsent(); });
}

void Family::turn(std::unique_lock<std::mutex>& lock) {
  std::vector<pollfd> polled{{bell_.get(), POLLIN, 0}, {listener_->get(), POLLIN, 0}};
  std::vector<int> ranks;
  Moment until = now() + kLongest;
  for (const auto& [rank, link] : links_) {
    ranks.push_back(rank);
    polled.push_back({link->socket(), link->events(), 0});
    until = std::min(until, link->next_time());
  }
  for (const auto& [group, circle] : circles_) until = std::min(until, circle->member_.next_time());
  for (const auto& guest : guests_) {
    polled.push_back({guest.socket(), POLLIN, 0});
    until = std::min(until, guest.since + kPatience);
  }
  if (stopping_) until = std::min(until, now() + kLastLooks);
  lock.unlock();
  const auto left = std::chrono::ceil<milliseconds>(std::max(until - now(), Moment::zero()));
  ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
  lock.lock();
  uint64_t rings = 0;
  [[maybe_unused]] const auto taken = ::read(bell_.get(), &rings, sizeof rings);

  const Moment at = now();
  if ((polled[1].revents & POLLIN) != 0) accept_all(at);
  guests_.poll_all();
  for (size_t i = 0; i < ranks.size(); ++i) {
    auto& link = *links_.at(ranks[i]);
    // Somebody else may have dealt with the socket meanwhile.
    attend(ranks[i], link, polled[i + 2].fd == link.socket() ? polled[i + 2].revents : short{0},
           at);
  }
  for (const auto& [group, circle] : circles_) {
    Member::Post out;
    circle->member_.on_time(at, out);
    if (!out.empty()) post(*circle, out);
  }
}

void Family::attend(int rank, Link& link, short events, Moment at) {
  const bool was_lost = link.state() == Link::State::kLost;
  link.on_ready(events, at);
  link.on_time(at);
  read(rank, link, at);
  if (was_lost || link.state() != Link::State::kLost) return;
  for (const auto& [group, circle] : circles_) {
    const auto near = circle->near_.find(rank);
    if (near == circle->near_.end()) continue;
    Member::Post out;
    circle->member_.on_lost(near->second, at, out);
    post(*circle, out);
  }
}

// Of the connections that stand; the thread does the rest.
void Family::catch_up() {
  const std::lock_guard lock(mutex_);
  const Moment at = now();
  // A copy: what is read may need another connection.
  std::vector<int> ranks;
  for (const auto& [rank, link] : links_)
    if (link->state() == Link::State::kUp) ranks.push_back(rank);
  for (const int rank : ranks) attend(rank, *links_.at(rank), POLLIN, at);
  wake();
}

void Family::run() {
  std::unique_lock lock(mutex_);
  Moment end = kNever;
  while (true) {
    if (stopping_ && end == kNever) end = now() + kLinger;
    if (stopping_ && (!has_unsent() || now() >= end)) return;
    try {
      turn(lock);
    } catch (const std::exception& error) {
      base::log(base::LogLevel::kError, std::string("side channel: ") + error.what());
      if (!lock.owns_lock()) lock.lock();
    }
  }
}

}  // namespace torch::comms::side
