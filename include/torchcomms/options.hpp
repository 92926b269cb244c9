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

// The options that all operations have.
struct OperationOptions {
  Hints hints;  // unknown keys have no effect and are never an error
  std::chrono::milliseconds timeout = kNoTimeout;  // kNoTimeout: the communicator's timeout applies
};

struct SendOptions : OperationOptions {
  int tag = 0;  // messages match by (peer, tag); only backends with tags (gloo, ctran) use it
};
struct RecvOptions : OperationOptions {
  int tag = 0;
  // Accepts the next message with this tag from any rank; `src` must be kAnySource, and
  // TorchWork::source() reports the sender. If one sender has sent several messages, the receive
  // takes the first that no other receive waits for.
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

// The settings of a new communicator. The constructor reads the environment variables
// TORCHCOMM_ABORT_ON_ERROR and TORCHCOMM_TIMEOUT_SECONDS each time.
// Throws: CommError(kInvalidArgument) that names a variable with a bad value.
struct TC_API CommOptions {
  CommOptions();

  bool abort_process_on_timeout_or_error;
  std::chrono::milliseconds timeout;  // of each operation, and of the start-up
  bool timeout_is_given = false;  // for split(): `timeout` is its own, even if it is the default
  std::optional<bool> is_high_priority_stream;  // the hint of the same name has precedence
  c10::intrusive_ptr<c10d::Store> store;        // null: rank discovery finds one
  bool enable_reconfigure = false;
  std::string name;  // older API: the name if new_comm() is called without one
  Hints hints;

  // Compares the abort flag, the timeout and the hints.
  bool operator==(const CommOptions& other) const;

  // Reads the hint `key` as bool, size_t or std::string.
  // Returns: the value, or `fallback` if the hint is absent.
  // Throws: CommError: kInvalidArgument if the text is not a boolean or not a number, kOutOfRange
  // if the number is too large.
  template <class T>
  T getHint(const std::string& key, const T& fallback) const;
};
template <>
TC_API bool CommOptions::getHint<bool>(const std::string&, const bool&) const;
template <>
TC_API size_t CommOptions::getHint<size_t>(const std::string&, const size_t&) const;
template <>
TC_API std::string CommOptions::getHint<std::string>(const std::string&, const std::string&) const;

// The members of the next membership, for reconfigure().
struct ReconfigureOptions {
  // The number of this membership: equal on all members, and never used by them before.
  int64_t uuid = 0;
  // A vector gives the order of the ranks; with a set the backend chooses the order.
  std::variant<std::unordered_set<InitHandle>, std::vector<InitHandle>> handles;
  // Without a value the communicator's timeout applies.
  std::optional<std::chrono::milliseconds> timeout;
  Hints hints;
};

}  // namespace torch::comms
