#pragma once

#include <new>
#include <string>

#include <torchcomms/base/error.hpp>

#include "backends/ctran/ctran_backend.hpp"
#include "backends/ctran/operand_buffers.hpp"
#include "backends/ctran/session.hpp"
#include "core/comm/error_context.hpp"

// Adds the context of a call to its errors, for the files that implement TorchCommCtran.
namespace torch::comms {

namespace ctran {

// Runs `body`. A CommError without context, and std::bad_alloc, leave as a CommError with the
// context that `context()` returns.
template <class MakeContext, class Body>
auto with_context(const MakeContext& context, const Body& body) {
  try {
    return comms::with_context(context, body);
  } catch (const std::bad_alloc&) {
    throw CommError(Errc::kResourceExhausted, "there is not enough memory", context());
  }
}

}  // namespace ctran

template <class Body>
WorkPtr TorchCommCtran::with_call_context(const ctran::CallInfo& issue, const Body& body) {
  const auto context = [&]() -> Context {
    return {.op = std::string(issue.op), .comm = name_, .rank = rank_};
  };
  return ctran::with_context(context, [&]() -> WorkPtr { return body(); });
}

}  // namespace torch::comms
