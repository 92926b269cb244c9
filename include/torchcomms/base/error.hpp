#pragma once

#include <chrono>
#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// The kind of failure of a CommError. docs/concepts/errors.md has one row for each. The Python
// exception types are made from the same table: errc_rows() in src/base/error.cpp.
enum class Errc : uint8_t {
  kInvalidArgument,     // the call itself is wrong; nothing was sent
  kOutOfRange,          // a number does not fit or lies outside its range
  kTimeout,             // a timeout has passed
  kPeerFailed,          // the process or the connection of a peer has failed
  kAborted,             // abort() was called
  kMismatch,            // ranks disagree about an operation
  kFinalized,           // the communicator is not initialized, or was finalized
  kStaleGeneration,     // this member belongs to an earlier membership
  kForked,              // the communicator was made before fork() and is used in the child
  kBackendUnavailable,  // the backend does not exist or does not work here
  kUnsupported,         // this backend has no such operation, dtype or device
  kResourceExhausted,   // descriptors, memory, threads, ports
  kUnsafeObject,        // an object collective received data that may run code
  kTooLarge,            // over a size cap
  kVendor,              // the vendor library's own error, its text included
  kSystem,              // the operating system's error, its text included
  kInternal,            // our bug
};

// The place of an error: operation, communicator, ranks. Empty strings and -1 mean "not
// applicable".
struct Context {
  std::string op = {};    // "all_reduce"
  std::string comm = {};  // name of the communicator
  int rank = -1;
  int peer = -1;  // the peer rank that the error is about
  // Number of the operation in its communicator, equal to that in the event ring and the flight
  // recorder; 0: none. For a collective on ctran it is the number that reports of peer ranks
  // contain; ctran counts its internal collectives, too.
  uint64_t seq = 0;
  // Ranks at fault, as far as they are known, in ascending order. For kPeerFailed the first entry
  // is the rank whose failure was detected first. In the context of a CommError, `peer` and
  // `culprits` agree: `peer` is the first or only culprit, and both are set.
  std::vector<int> culprits = {};
  std::chrono::milliseconds limit{0};  // timeout of the operation; 0: none, or not known

  // Returns: this context with `peer` and `culprits` of `there`.
  TC_API Context blaming(const Context& there) const;
};

// The only C++ exception type of the library. `what()` is "<op> on '<comm>' (rank R, peer P,
// operation S): <why>"; `why()` is the reason alone. For kInternal, `what()` also has the source
// line.
class TC_API CommError : public std::runtime_error {
 public:
  CommError(Errc code, std::string why, Context context = {},
            std::source_location at = std::source_location::current());

  Errc code() const noexcept { return code_; }
  const std::string& why() const noexcept { return why_; }
  const Context& context() const noexcept { return context_; }

 private:
  Errc code_;
  std::string why_;
  Context context_;
};

// One row of the error table, from which the Python exception types and the docs are made.
struct ErrcRow {
  Errc code;
  const char* name;  // Python class name; "CommError" if the code has no class of its own
  const char* doc;
};
// Returns: the rows of all codes in enum order; `*count` receives their number.
TC_API const ErrcRow* errc_rows(size_t* count) noexcept;

// Throws CommError(kInternal) with the source line. It is for conditions that only a bug of this
// library can break.
[[noreturn]] TC_API void throw_internal(std::string_view condition,
                                        std::source_location at = std::source_location::current());

#define TC_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::torch::comms::throw_internal(#condition))

}  // namespace torch::comms
