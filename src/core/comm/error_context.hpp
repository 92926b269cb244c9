#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

// Helpers for the error texts of all backends.
namespace torch::comms {

// The text by which errors name the timeout of a call that has no timeout of its own.
inline constexpr std::string_view kCommTimeoutHelp =
    "the communicator's timeout (raise it for this call with timeout=, for all with timeout= of "
    "new_comm or TORCHCOMM_TIMEOUT_SECONDS)";

// Returns: the timeout of an operation and its source: "5 s, timeout= of this call", or the
// communicator's timeout and how to raise it.
TC_API std::string format_timeout(std::chrono::milliseconds limit, bool is_own);

// The longest timeout, equal to the maximum of TORCHCOMM_TIMEOUT_SECONDS: about 31 years. The
// current time plus this timeout still fits into a clock that counts nanoseconds in 64 bits.
inline constexpr std::chrono::seconds kMaxTimeout{1'000'000'000};

// Throws: CommError(kInvalidArgument) if the timeout of a communicator is negative or longer than
// kMaxTimeout.
TC_API void require_valid_timeout(std::chrono::milliseconds timeout, const Context& context);

// Runs `body` and adds the context to its errors. A CommError that has no operation gets `context`,
// or the result of calling it; if it has a peer or culprits, it keeps both. Other exceptions pass
// unchanged.
// Returns: the result of `body`.
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
