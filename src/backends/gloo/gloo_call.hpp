#pragma once

#include <cxxabi.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <torchcomms/base/error.hpp>
#include <torchcomms/types.hpp>

#include "base/current_sequence.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::gloo {

using Clock = std::chrono::steady_clock;

// Identifies this rank and its communicator in error texts. Shared with the works in flight.
struct GlooCommInfo {
  std::string name;  // name of the communicator
  int rank = -1;
  int size = 0;
  uint64_t identity = 0;  // identifies this set of members
};

// One operation as the caller issued it: the data for error texts, and the timeout.
struct GlooCall {
  OpName op;
  std::shared_ptr<const GlooCommInfo> comm;
  std::chrono::milliseconds timeout;
  bool has_own_timeout;  // the timeout= argument of the call, not the communicator's default
  bool async_op;
  Clock::time_point begin = Clock::now();
  uint64_t sequence = base::current_sequence();

  Clock::time_point deadline() const { return begin + timeout; }
};

// Returns: the error context of the call; `peer` is -1 if no peer is involved.
Context context(const GlooCall& call, int peer = -1);

// Returns: a list with `peer`, or an empty list for -1.
std::vector<int> ranks_of(int peer);

// Returns: a kTimeout error that names the timeout, the setting to raise, and the ranks at fault.
// `detail` is further information, for example Gloo's own text. `where` describes the progress of
// the ranks.
CommError timeout_error(const GlooCall& call, std::vector<int> culprits, const std::string& detail,
                        const std::string& where = "");

// Converts an exception of Gloo, c10d or the system to a CommError: kTimeout, kPeerFailed,
// kMismatch, kResourceExhausted, kSystem, or otherwise kVendor. The original text comes last. A
// CommError without a context gets the context of the call.
CommError translate_error(const std::exception_ptr& error, const GlooCall& call, int peer = -1);

// Converts a refusal of the system, most often to start a thread, to a CommError.
CommError system_comm_error(const std::system_error& error, const Context& context = {});

// Returns: the status of a work with this error; COMPLETED for a null pointer.
WorkStatus status_of(const std::exception_ptr& error) noexcept;

// Runs `body`. Any exception leaves as a CommError with the context of the call.
template <class Body>
auto with_translated_errors(const GlooCall& call, Body&& body) {
  try {
    return body();
  } catch (const abi::__forced_unwind&) {
    check_interrupt();  // does not return to a Python interpreter that has ended
    throw;
  } catch (...) {
    throw translate_error(std::current_exception(), call);
  }
}

}  // namespace torch::comms::gloo
