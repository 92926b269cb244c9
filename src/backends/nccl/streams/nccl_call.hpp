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

// One operation as it was called: what its errors tell, and how long it may take.
struct NcclCall {
  OpName op;
  const std::string& comm;  // the communicator's name, which outlives its operations
  int rank;
  std::chrono::milliseconds timeout;
  bool has_own_timeout;  // timeout= of the call, not the communicator's default
  bool async_op;
  bool aborts_at_timeout = false;  // at its limit, in replays of a graph, too
  std::string_view name = {};      // of what is no operation of the communicator; lives forever

  uint64_t sequence = base::current_sequence();

  std::string_view timeout_setting =
      {};  // what raises the limit; "": timeout= of the call or communicator

  Context context(int peer = -1) const {
    return {.op = std::string(name.empty() ? opToString(op) : name),
            .comm = comm,
            .rank = rank,
            .peer = peer,
            .seq = sequence,
            .limit = timeout};
  }
  Context context(std::vector<int> culprits) const {
    auto made = context();
    made.culprits = std::move(culprits);
    return made;
  }
};

// What a passed limit means, and which one to raise. `while_doing`: "not finished".
std::string format_timeout_error(const NcclCall& call, const char* while_doing);

// For the calls of the library that launch it; ends with Ctrl-C. `call` outlives it.
WaitOptions launch_wait(const NcclCall& call);

// The same error, with the call's context where it has none.
CommError with_context(const CommError& error, const NcclCall& call);

}  // namespace torch::comms::nccl
