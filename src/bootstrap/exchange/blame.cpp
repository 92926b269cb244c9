#include "bootstrap/exchange/blame.hpp"

#include <chrono>

#include "bootstrap/ranks.hpp"

namespace torch::comms::bootstrap {
namespace {

// How long to wait for a text that another rank is just writing.
constexpr std::chrono::milliseconds kPatience{800};

Notice own_reason(KeyValue& store, const Participant& self, const Notice& failure,
                  const std::string& where, const std::string& dropped) {
  Notice reason = failure;
  reason.why = "while exchanging addresses, " + failure.why;
  if (!where.empty()) reason.why += " (" + where + ")";
  if (failure.code == Errc::kTimeout) {
    reason.why += " within " + to_text(self.limit.duration) + " (the limit of rank " +
                  std::to_string(self.rank) + ")";
    const auto absent = absent_ranks(store, contact_prefix(self), self.size);
    if (!absent.empty()) {
      reason.why += "; " + name_ranks(absent, self.size) + " did not come at all";
      reason.peer = absent.size() == 1 ? absent[0] : -1;
    }
  }
  reason.why += "; store " + store.address();
  if (!dropped.empty()) reason.why += "; rank " + std::to_string(self.rank) + " " + dropped;
  if (failure.code == Errc::kTimeout)
    reason.why +=
        ". See whether those processes run and can be reached; if they only need longer, raise " +
        self.limit.knob;
  return reason;
}

}  // namespace

std::string contact_prefix(const Participant& self) { return self.scope + "/contact/"; }

CommError blame(KeyValue& store, const Participant& self, const Notice& failure,
                const std::string& where, const std::string& dropped) {
  Notice reason = failure;
  try {
    if (store.add(self.scope + "/claim", 1) == 1) {
      reason = own_reason(store, self, failure, where, dropped);
      store.set(self.scope + "/verdict", to_bytes(reason));
    } else if (auto told = parse_notice(store.get(self.scope + "/verdict", kPatience), self.size)) {
      reason = std::move(*told);
    }
  } catch (const CommError& e) {
    reason.why = "while exchanging addresses, " + failure.why +
                 (where.empty() ? "" : " (" + where + ")") + "; no more is known, for " + e.why();
  }
  const int peer = reason.peer == self.rank ? -1 : reason.peer;
  return {reason.code, reason.why, {.op = "", .comm = self.name, .rank = self.rank, .peer = peer}};
}

}  // namespace torch::comms::bootstrap
