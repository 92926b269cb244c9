#include <torchcomms/base/error.hpp>

#include <iterator>

#include "base/op_order.hpp"
#include "base/text/utf8.hpp"

namespace torch::comms {
namespace {

constexpr ErrcRow kRows[] = {
    {Errc::kInvalidArgument, "InvalidArgument", "The call itself is wrong; nothing was sent."},
    {Errc::kOutOfRange, "OutOfRange", "A number does not fit, or lies outside its range."},
    {Errc::kTimeout, "CommTimeout",
     "A timeout passed; the message names it and the setting that raises it."},
    {Errc::kPeerFailed, "PeerFailed", "A peer's process or connection has failed."},
    {Errc::kAborted, "Aborted", "The communicator was aborted."},
    {Errc::kMismatch, "Mismatch", "Ranks disagree about an operation."},
    {Errc::kFinalized, "CommFinalized", "The communicator is not initialized, or is finalized."},
    {Errc::kStaleGeneration, "StaleGeneration", "This member belongs to an earlier membership."},
    {Errc::kForked, "ForkedProcess",
     "The communicator was made before fork(); make one in the child."},
    {Errc::kBackendUnavailable, "BackendUnavailable",
     "The backend does not exist, or does not work here."},
    {Errc::kUnsupported, "Unsupported", "The backend has no such operation, dtype or device."},
    {Errc::kResourceExhausted, "ResourceExhausted",
     "Descriptors, memory, threads or ports ran out; the message names which."},
    {Errc::kUnsafeObject, "UnsafeObject", "An object was refused because reading it may run code."},
    {Errc::kTooLarge, "TooLarge", "Something is over its size cap."},
    {Errc::kVendor, "CommError", "An error that the vendor library reported."},
    {Errc::kSystem, "CommError", "An error that the operating system reported."},
    {Errc::kInternal, "CommError", "A bug in torchcomms; please report it with the message."},
};

// Quotes a communicator's name, cut to about 120 bytes: a name may be arbitrarily long.
std::string quoted(const std::string& name) {
  constexpr size_t kMost = 120;
  if (name.size() <= kMost) return "'" + name + "'";
  return "'" + std::string(base::utf8_prefix(name, kMost - 20)) + "...'";
}

std::string format(Errc code, const std::string& why, const Context& context,
                   const std::source_location& at) {
  std::string where = context.op;
  if (!context.comm.empty()) where += (where.empty() ? "on " : " on ") + quoted(context.comm);
  std::string who;
  const auto add = [&who](const char* label, const std::string& value) {
    who += (who.empty() ? "" : ", ") + std::string(label) + value;
  };
  if (context.rank >= 0) add("rank ", std::to_string(context.rank));
  if (context.peer >= 0) add("peer ", std::to_string(context.peer));
  if (context.seq > 0) add("", base::format_sequence(context.seq));
  if (!who.empty()) where += (where.empty() ? "(" : " (") + who + ")";
  std::string text = where.empty() ? why : where + ": " + why;
  if (code == Errc::kInternal)
    text += " [" + std::string(at.file_name()) + ":" + std::to_string(at.line()) + "]";
  return text;
}

// Returns whether the caller's own arguments are wrong, so that no peer is a culprit.
bool is_wrong_call(Errc code) noexcept {
  return code == Errc::kInvalidArgument || code == Errc::kOutOfRange || code == Errc::kUnsupported;
}

Context completed(Errc code, Context context) {
  const auto& culprits = context.culprits;
  if (context.peer < 0 &&
      (culprits.size() == 1 || (code == Errc::kPeerFailed && !culprits.empty())))
    context.peer = culprits[0];
  if (context.peer >= 0 && context.culprits.empty() && !is_wrong_call(code))
    context.culprits = {context.peer};
  return context;
}

}  // namespace

Context Context::blaming(const Context& there) const {
  Context result = *this;
  result.peer = there.peer;
  result.culprits = there.culprits;
  return result;
}

CommError::CommError(Errc code, std::string why, Context context, std::source_location at)
    : std::runtime_error(format(code, why, completed(code, context), at)),
      code_(code),
      why_(std::move(why)),
      context_(completed(code, std::move(context))) {}

const ErrcRow* errc_rows(size_t* count) noexcept {
  *count = std::size(kRows);
  return kRows;
}

void throw_internal(std::string_view condition, std::source_location at) {
  throw CommError(Errc::kInternal, "internal check failed: " + std::string(condition), {}, at);
}

}  // namespace torch::comms
