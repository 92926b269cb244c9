#include "bootstrap/arrival_barrier.hpp"

#include <exception>
#include <string>

#include "base/text/utf8.hpp"
#include "bootstrap/arrival_attempt.hpp"

namespace torch::comms::bootstrap {
namespace {

[[noreturn]] void refuse(const AttemptResult& result, const ArrivalBarrierParams& self,
                         const KeyValueStore& store) {
  const bool late = result.kind == AttemptResult::kTimeout;
  std::string why = result.text + " (store " + store.address() + ")";
  if (late)
    why += ". Check that those processes run and create '" + self.name +
           "', too; if they only need more time, raise " + self.timeout.setting;
  const auto code = late                                      ? Errc::kTimeout
                    : result.kind == AttemptResult::kMismatch ? Errc::kMismatch
                                                              : Errc::kPeerFailed;
  const int peer = result.peer == self.rank ? -1 : result.peer;
  throw CommError(code, why, {.op = "", .comm = self.name, .rank = self.rank, .peer = peer});
}

int64_t first_attempt(KeyValueStore& store, const std::string& root) {
  if (!store.has({root + "next"})) return 0;
  const auto text = store.get(root + "next", kWriteGrace);
  try {
    return std::stoll(text);
  } catch (const std::logic_error&) {
    throw CommError(Errc::kSystem, "the store " + store.address() +
                                       " returned a text that no rank wrote: '" +
                                       std::string(base::utf8_prefix(text, 80)) + "'");
  }
}

}  // namespace

ArrivalBarrierResult wait_for_all_ranks(KeyValueStore& store, const ArrivalBarrierParams& self) {
  validate_rank(self.rank, self.size);
  // The length prefix separates names that contain slashes and numbers.
  const std::string root =
      self.key_scope + "/" + std::to_string(self.name.size()) + ":" + self.name + "/";
  for (int64_t number = first_attempt(store, root);; ++number) {
    ArrivalAttempt attempt(store, self, root, number);
    const auto result = attempt.run();
    if (!result) continue;
    attempt.rethrow_prepare_error();
    const auto size = format_rank_count(self.size);
    if (result->kind == AttemptResult::kSuccess && result->text == size) {
      attempt.remove_previous();
      return {attempt.key_prefix(), number, result->identity};
    }
    attempt.sync_before_raising();
    if (result->kind == AttemptResult::kSuccess)
      refuse({AttemptResult::kMismatch, self.rank,
              "rank " + std::to_string(self.rank) + " creates '" + self.name + "' with " + size +
                  ", but its ranks have just created it with " + result->text},
             self, store);
    refuse(*result, self, store);
  }
}

}  // namespace torch::comms::bootstrap
