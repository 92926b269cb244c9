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
  kUnsupported,         // the backend has no such operation, dtype, reduction or device
  kResourceExhausted,   // descriptors, memory, threads or ports ran out
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
  // recorder; 0: none. For a collective on ctran it is the number in the reports of peer ranks;
  // that number counts the internal collectives of ctran, too.
  uint64_t seq = 0;
  // Ranks at fault, as far as they are known, in ascending order; for kPeerFailed the rank whose
  // failure was detected first comes first.
  //
  // The constructor of CommError completes `peer` and `culprits`. A `peer` that is not set becomes
  // the only culprit, or for kPeerFailed the first one. If `culprits` is empty and `peer` is set,
  // it becomes {peer}, except for kInvalidArgument, kOutOfRange and kUnsupported: there only the
  // caller is wrong.
  std::vector<int> culprits = {};
  std::chrono::milliseconds limit{0};  // timeout of the operation; 0: none, or not known

  // Returns: a copy of this context with the `peer` and the `culprits` of `there`.
  TC_API Context blaming(const Context& there) const;
};

// The exception type of all errors of the library. `what()` is "<op> on '<comm>' (rank R, peer P,
// operation S): <why>" without the parts that are not set; `why()` is the reason alone. For
// kInternal, `what()` ends with the source file and line. Exceptions of hooks and of the interrupt
// check leave a call with their own type.
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

// Reports a condition that only a bug of this library can break.
// Throws: CommError(kInternal) with the source file and line.
[[noreturn]] TC_API void throw_internal(std::string_view condition,
                                        std::source_location at = std::source_location::current());

// Calls throw_internal() if the condition is false.
#define TC_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::torch::comms::throw_internal(#condition))

}  // namespace torch::comms
