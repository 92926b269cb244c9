#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torchcomms/base/error.hpp>
#include <torchcomms/types.hpp>

#include "base/current_sequence.hpp"
#include "vendor/communicator.hpp"

namespace torch::comms::nccl {

// One operation as it was called: its identity for error texts, and its timeout.
// Lifetime: it refers to the communicator's name, and must not outlive the communicator.
struct NcclCall {
  OpName op;
  const std::string& comm;  // the communicator's name, which outlives its operations
  int rank;
  std::chrono::milliseconds timeout;
  bool has_own_timeout;  // timeout= of the call, not the communicator's default
  bool async_op;
  bool aborts_at_timeout =
      false;                   // its kernels end at the timeout themselves, also in graph replays
  std::string_view name = {};  // of a call that is no OpName, such as "put"; a literal

  uint64_t sequence = base::current_sequence();  // of the thread that creates the call; 0: none

  std::string_view timeout_setting =
      {};  // the setting that raises the timeout; "": timeout= of the call or communicator

  Context context(int peer = -1) const {
    return {.op = std::string(name.empty() ? opToString(op) : name),
            .comm = comm,
            .rank = rank,
            .peer = peer,
            .seq = sequence,
            .limit = timeout};
  }
  Context context(std::vector<int> culprits) const {
    auto result = context();
    result.culprits = std::move(culprits);
    return result;
  }
};

// Returns: the text of a timeout error, with the setting that raises the timeout. `while_doing` is
// what did not happen in time, such as "not finished".
std::string format_timeout_error(const NcclCall& call, const char* while_doing);

// Returns: how to wait for library calls that launch the operation. The deadline is the timeout of
// `call`, counted from now: CommError(kTimeout). Ctrl-C ends the wait, too: Interrupted.
// Lifetime: `call` must outlive the result.
WaitOptions launch_wait(const NcclCall& call);

// Returns: `error`; with the context of `call` if its own context names no operation. The new
// context keeps peer and culprits of `error`.
CommError with_context(const CommError& error, const NcclCall& call);

}  // namespace torch::comms::nccl
