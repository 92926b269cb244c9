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

// What kind of failure a CommError is. One row each in docs/concepts/errors.md; the Python
// exception types are made from the same table (errc_rows() in src/base/error.cpp).
enum class Errc : uint8_t {
  kInvalidArgument,     // the call itself is wrong; nothing was sent
  kOutOfRange,          // a number does not fit or lies outside its range
  kTimeout,             // a limit passed
  kPeerFailed,          // a peer's process or connection is gone
  kAborted,             // abort() was called
  kMismatch,            // ranks disagree about an operation
  kFinalized,           // the communicator is not initialized (any more)
  kStaleGeneration,     // this member belongs to an earlier membership
  kForked,              // used in a forked child
  kBackendUnavailable,  // the backend does not exist or does not work here
  kUnsupported,         // this backend has no such operation, dtype or device
  kResourceExhausted,   // descriptors, memory, threads, ports
  kUnsafeObject,        // an object collective was sent something that may run code
  kTooLarge,            // over a size cap
  kVendor,              // the vendor library's own error, its text included
  kSystem,              // the operating system's error, its text included
  kInternal,            // our bug
};

// Where an error was born. Empty strings and -1 mean "not applicable".
struct Context {
  std::string op = {};    // "all_reduce"
  std::string comm = {};  // name of the communicator
  int rank = -1;
  int peer = -1;  // the one other rank that it is about
  // Number of the operation in its communicator, as event ring and flight recorder have it; of a
  // collective on ctran as reports of other ranks have it, which count its own calls, too. 0: none.
  uint64_t seq = 0;
  // Ranks at fault, as far as they are known, ascending; of kPeerFailed the first one to be missed
  // comes first. Of a failure's CommError `peer` is that one, or the only one, and both are there.
  std::vector<int> culprits = {};
  std::chrono::milliseconds limit{0};  // what the operation had; 0: none, or not known

  // This place, with those who are at fault there.
  TC_API Context blaming(const Context& there) const;
};

// The one C++ exception of the library. `what()` is "<op> on '<comm>' (rank R, peer P, operation
// S): <why>"; `format_error()` is the reason alone. Internal errors also carry the source line.
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

// Name and meaning of each Errc, in enum order: the one table behind the Python types and the docs.
struct ErrcRow {
  Errc code;
  const char* name;  // Python class name; "CommError" where there is no type of its own
  const char* doc;
};
TC_API const ErrcRow* errc_rows(size_t* count) noexcept;

// Throws kInternal with the source line. For conditions that only our own bug can break.
[[noreturn]] TC_API void throw_internal(std::string_view condition,
                                        std::source_location at = std::source_location::current());

#define TC_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::torch::comms::throw_internal(#condition))

}  // namespace torch::comms
