#include "backends/gloo/gloo_call.hpp"

#include <new>
#include <string_view>

#include <c10/util/Exception.h>

#include "core/comm/error_context.hpp"

namespace torch::comms::gloo {
namespace {

// Maps a text of a Gloo exception to an error code. Gloo has one exception type for all errors, so
// the text decides. The first row whose text occurs wins.
struct ErrorPattern {
  std::string_view text;
  Errc code;
  const char* reason;
};
constexpr const char* kPeerClosedText = "a peer's process has exited, or its connection is closed";
constexpr ErrorPattern kErrorPatterns[] = {
    // Gloo closes all connections of a communicator when one of its collectives times out.
    {"Application timeout caused pair closure", Errc::kPeerFailed,
     "Gloo closed the connections of this communicator when another operation timed out; make a "
     "new communicator"},
    {"Timed out", Errc::kTimeout, nullptr},
    {"timed out", Errc::kTimeout, nullptr},
    {"timeout", Errc::kTimeout, nullptr},
    {"Connection closed by peer", Errc::kPeerFailed, kPeerClosedText},
    {"Connection reset by peer", Errc::kPeerFailed, kPeerClosedText},
    {"Connection refused", Errc::kPeerFailed, kPeerClosedText},
    {"Broken pipe", Errc::kPeerFailed, kPeerClosedText},
    {"Read error", Errc::kPeerFailed, kPeerClosedText},
    {"Write error", Errc::kPeerFailed, kPeerClosedText},
    {"Socket closed", Errc::kPeerFailed, kPeerClosedText},
    // Texts of the stores that Gloo uses to connect.
    {"Connection was likely closed", Errc::kPeerFailed, "the connection to the store is closed"},
    {"the store did not answer", Errc::kTimeout, nullptr},
    {"doesn't match expected size", Errc::kMismatch,
     "the ranks call this operation with different sizes"},
    {"Too many open files", Errc::kResourceExhausted, "no file descriptors are left (ulimit -n)"},
    {"can't allocate memory", Errc::kResourceExhausted, "there is not enough memory"},
    {"not enough memory", Errc::kResourceExhausted, "there is not enough memory"},
};

std::string native_text(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

CommError translate_text(const std::string& text, const GlooCall& call, int peer) {
  for (const auto& row : kErrorPatterns) {
    if (text.find(row.text) == std::string::npos) continue;
    if (row.code == Errc::kTimeout) return timeout_error(call, ranks_of(peer), "Gloo: " + text);
    return {row.code, std::string(row.reason) + ". Gloo: " + text, context(call, peer)};
  }
  return {Errc::kVendor, "Gloo: " + text, context(call, peer)};
}

}  // namespace

std::vector<int> ranks_of(int peer) { return peer < 0 ? std::vector<int>() : std::vector{peer}; }

Context context(const GlooCall& call, int peer) {
  return {.op = std::string(opToString(call.op)),
          .comm = call.comm->name,
          .rank = call.comm->rank,
          .peer = peer,
          .seq = call.sequence,
          .limit = call.timeout};
}

CommError timeout_error(const GlooCall& call, std::vector<int> culprits, const std::string& detail,
                        const std::string& where) {
  std::string why = "not finished within the timeout of " +
                    format_timeout(call.timeout, call.has_own_timeout) +
                    ". A rank did not join the operation in time, or is too slow";
  if (!detail.empty()) why += ". " + detail;
  why += where;
  auto error_context = context(call);
  error_context.culprits = std::move(culprits);
  return {Errc::kTimeout, why, error_context};
}

CommError translate_error(const std::exception_ptr& error, const GlooCall& call, int peer) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    if (!e.context().op.empty()) return e;
    const auto error_context = context(call, peer);
    return {e.code(), e.why(),
            e.context().peer < 0 ? error_context : error_context.blaming(e.context())};
  } catch (const std::bad_alloc&) {
    return {Errc::kResourceExhausted, "there is not enough memory", context(call, peer)};
  } catch (const std::system_error& e) {
    return system_comm_error(e, context(call, peer));
  } catch (const std::exception& e) {
    return translate_text(native_text(e), call, peer);
  } catch (...) {
    return {Errc::kVendor, "Gloo threw an exception of unknown type", context(call, peer)};
  }
}

CommError system_comm_error(const std::system_error& error, const Context& context) {
  if (error.code() != std::errc::resource_unavailable_try_again)
    return {Errc::kSystem, error.what(), context};
  return {Errc::kResourceExhausted,
          std::string("no thread could be started (ulimit -u, or the limit of a container): ") +
              error.what(),
          context};
}

WorkStatus status_of(const std::exception_ptr& error) noexcept {
  if (!error) return WorkStatus::COMPLETED;
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    return e.code() == Errc::kTimeout ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
  } catch (...) {
    return WorkStatus::ERROR;
  }
}

}  // namespace torch::comms::gloo
