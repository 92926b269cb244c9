#include "bootstrap/checkin.hpp"

#include <exception>
#include <string>

#include "base/utf8.hpp"
#include "bootstrap/attempt.hpp"

namespace torch::comms::bootstrap {
namespace {

[[noreturn]] void refuse(const Verdict& verdict, const CheckIn& self, const KeyValue& store) {
  const bool late = verdict.kind == Verdict::kTimeout;
  std::string why = verdict.text + " (store " + store.address() + ")";
  if (late)
    why += ". See whether those processes run and create '" + self.name +
           "', too; if they only need longer, raise " + self.limit.knob;
  const auto code = late                                 ? Errc::kTimeout
                    : verdict.kind == Verdict::kMismatch ? Errc::kMismatch
                                                         : Errc::kPeerFailed;
  const int peer = verdict.peer == self.rank ? -1 : verdict.peer;
  throw CommError(code, why, {.op = "", .comm = self.name, .rank = self.rank, .peer = peer});
}

int64_t first_attempt(KeyValue& store, const std::string& root) {
  if (!store.has({root + "next"})) return 0;
  const auto text = store.get(root + "next", kGrace);
  try {
    return std::stoll(text);
  } catch (const std::logic_error&) {
    throw CommError(Errc::kSystem, "the store " + store.address() +
                                       " returned a text that no rank wrote: '" +
                                       std::string(base::utf8_prefix(text, 80)) + "'");
  }
}

}  // namespace

Arrival check_in(KeyValue& store, const CheckIn& self) {
  require_rank(self.rank, self.size);
  // The length keeps names apart that contain slashes and numbers.
  const std::string root =
      self.scope + "/" + std::to_string(self.name.size()) + ":" + self.name + "/";
  for (int64_t number = first_attempt(store, root);; ++number) {
    Attempt attempt(store, self, root, number);
    const auto verdict = attempt.take_part();
    if (!verdict) continue;
    attempt.raise_failure();
    const auto size = count_ranks(self.size);
    if (verdict->kind == Verdict::kGo && verdict->text == size) {
      attempt.remove_previous();
      return {attempt.keys(), number, verdict->identity};
    }
    attempt.part();
    if (verdict->kind == Verdict::kGo)
      refuse({Verdict::kMismatch, self.rank,
              "rank " + std::to_string(self.rank) + " says that " + "'" + self.name + "'" +
                  " has " + size + ", but it was just formed of " + verdict->text},
             self, store);
    refuse(*verdict, self, store);
  }
}

}  // namespace torch::comms::bootstrap
