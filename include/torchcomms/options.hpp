#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <unordered_set>
#include <variant>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/types.hpp>

namespace torch::comms {

// What every operation takes besides its data.
struct OperationOptions {
  Hints hints;                                     // unknown keys are ignored, never an error
  std::chrono::milliseconds timeout = kNoTimeout;  // kNoTimeout: the communicator's default
};

struct SendOptions : OperationOptions {
  int tag = 0;  // used where the backend has tags (gloo, ctran); messages match by (peer, tag)
};
struct RecvOptions : OperationOptions {
  int tag = 0;
  // The next message with the tag, whoever sent it; `src` is kAnySource then, and the work says who
  // it was. Of a sender's messages the first that no other receive waits for.
  bool any_source = false;
};
struct BroadcastOptions : OperationOptions {};
struct AllReduceOptions : OperationOptions {};
struct ReduceOptions : OperationOptions {};
struct AllGatherOptions : OperationOptions {};
struct AllGatherSingleOptions : OperationOptions {};
struct ReduceScatterOptions : OperationOptions {};
struct ReduceScatterSingleOptions : OperationOptions {};
struct AllToAllOptions : OperationOptions {};
struct AllToAllSingleOptions : OperationOptions {};
struct AllToAllvSingleOptions : OperationOptions {};
struct BarrierOptions : OperationOptions {};
struct ScatterOptions : OperationOptions {};
struct GatherOptions : OperationOptions {};
struct GatherSingleOptions : OperationOptions {};
struct BatchP2POptions : OperationOptions {};
struct AllGatherPInitOptions : OperationOptions {};
struct AllGatherPExecOptions : OperationOptions {};
struct PutOptions : OperationOptions {};
struct SignalOptions : OperationOptions {};
struct WaitSignalOptions : OperationOptions {};

// How a communicator is made. The constructor reads the environment
// (TORCHCOMM_ABORT_ON_ERROR, TORCHCOMM_TIMEOUT_SECONDS) each time and throws
// CommError(kInvalidArgument) naming a bad value.
struct TC_API CommOptions {
  CommOptions();

  bool abort_process_on_timeout_or_error;
  std::chrono::milliseconds timeout;  // per operation, and for the start-up
  bool timeout_is_given = false;  // of a split: `timeout` is its own, also where it is the default
  std::optional<bool> is_high_priority_stream;  // the hint of the same name wins
  c10::intrusive_ptr<c10d::Store> store;        // null: rank discovery finds one
  bool enable_reconfigure = false;
  std::string name;  // older API: used when new_comm is called without a name
  Hints hints;

  // Compares abort flag, timeout and hints.
  bool operator==(const CommOptions& other) const;

  // The hint `key` as bool, size_t or std::string; `fallback` where it is absent.
  // Throws CommError: bad boolean text (kVendor-free RuntimeError kind), not a number
  // (kInvalidArgument), too large (kOutOfRange).
  template <class T>
  T getHint(const std::string& key, const T& fallback) const;
};
template <>
TC_API bool CommOptions::getHint<bool>(const std::string&, const bool&) const;
template <>
TC_API size_t CommOptions::getHint<size_t>(const std::string&, const size_t&) const;
template <>
TC_API std::string CommOptions::getHint<std::string>(const std::string&, const std::string&) const;

struct ReconfigureOptions {
  int64_t uuid = 0;
  // A vector orders the ranks; a set leaves the order to the backend.
  std::variant<std::unordered_set<InitHandle>, std::vector<InitHandle>> handles;
  std::optional<std::chrono::milliseconds> timeout;
  Hints hints;
};

}  // namespace torch::comms
