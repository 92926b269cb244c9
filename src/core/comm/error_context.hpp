#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

// What the errors of all backends say alike.
namespace torch::comms {

// What the limit is called of a call without its own.
inline constexpr std::string_view kCommTimeoutHelp =
    "the communicator's timeout (raise it for this call with timeout=, for all with timeout= of "
    "new_comm or TORCHCOMM_TIMEOUT_SECONDS)";

// The limit of an operation, and whose it is: "5 s, timeout= of this call", or the communicator's
// and how to raise it.
TC_API std::string format_timeout(std::chrono::milliseconds limit, bool is_own);

// The longest limit: as of TORCHCOMM_TIMEOUT_SECONDS, 31 years. Now and it are still a time of a
// clock that counts ns.
inline constexpr std::chrono::seconds kMaxTimeout{1'000'000'000};

// Throws CommError(kInvalidArgument) where a communicator's timeout is negative or above that.
TC_API void require_valid_timeout(std::chrono::milliseconds timeout, const Context& context);

// Runs `body`; a CommError without an operation gets `context`, or what it returns, and keeps the
// ranks that it blames.
template <class MakeContext, class Body>
auto with_context(const MakeContext& context, const Body& body) {
  try {
    return body();
  } catch (const CommError& e) {
    if (!e.context().op.empty()) throw;
    const auto& there = e.context();
    const bool blames = there.peer >= 0 || !there.culprits.empty();
    throw CommError(e.code(), e.why(), blames ? context().blaming(there) : context());
  }
}
template <class Body>
auto with_context(const Context& context, const Body& body) {
  return with_context([&context]() -> const Context& { return context; }, body);
}

}  // namespace torch::comms
