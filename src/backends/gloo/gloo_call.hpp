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

// This rank in its communicator, as error texts name it. Shared with the works in flight.
struct GlooCommInfo {
  std::string name;  // of the communicator
  int rank = -1;
  int size = 0;
  uint64_t identity = 0;  // of these members
};

// One operation as it was called: what its errors tell, and how long it may take.
struct GlooCall {
  OpName op;
  std::shared_ptr<const GlooCommInfo> comm;
  std::chrono::milliseconds timeout;
  bool has_own_timeout;  // timeout= of the call, not the communicator's default
  bool async_op;
  Clock::time_point begin = Clock::now();
  uint64_t sequence = base::current_sequence();

  Clock::time_point deadline() const { return begin + timeout; }
};

Context context(const GlooCall& call, int peer = -1);

// None for -1.
std::vector<int> ranks_of(int peer);

// kTimeout, naming the limit and what to raise, with the ranks at fault. `detail` says what is
// known besides, e.g. Gloo's own text; `where` where the ranks are.
CommError timeout_error(const GlooCall& call, std::vector<int> culprits, const std::string& detail,
                        const std::string& where = "");

// What Gloo, c10d or the system threw, as the one error type: kTimeout, kPeerFailed, kSizeMismatch,
// kResourceExhausted, else kVendor; the original text comes last. A CommError without a context
// gets the call's.
CommError translate_error(const std::exception_ptr& error, const GlooCall& call, int peer = -1);

// What the system refused: most often a thread.
CommError system_comm_error(const std::system_error& error, const Context& context = {});

// The status that a work with this error has; COMPLETED for none.
WorkStatus status_of(const std::exception_ptr& error) noexcept;

// Runs `body`; whatever it throws leaves as CommError with the call's context.
template <class Body>
auto with_translated_errors(const GlooCall& call, Body&& body) {
  try {
    return body();
  } catch (const abi::__forced_unwind&) {
    check_interrupt();  // which keeps a thread that comes back to a Python that has ended
    throw;
  } catch (...) {
    throw translate_error(std::current_exception(), call);
  }
}

}  // namespace torch::comms::gloo
