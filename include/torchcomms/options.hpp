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
  Hints hints;  // unknown keys have no effect and are never an error; they may cause a warning
  // kNoTimeout: the communicator's timeout applies. Allowed is up to 1e9 s; a negative timeout is
  // kInvalidArgument.
  std::chrono::milliseconds timeout = kNoTimeout;
};

struct SendOptions : OperationOptions {
  // Messages match by (peer, tag). Allowed is 0 to kLargestTag. Only gloo and ctran have tags;
  // other backends ignore them.
  int tag = 0;
};
struct RecvOptions : OperationOptions {
  int tag = 0;  // see SendOptions::tag
  // Accepts the next message with this tag from any rank. `src` must be kAnySource and `async_op`
  // true, because TorchWork::source() reports the sender. Backends without
  // Capabilities::any_source throw kUnsupported. If one sender has sent several messages, the
  // receive takes the first that no other receive waits for.
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
  // Of each operation, and of the start-up. 0 means kDefaultTimeout; allowed is up to 1e9 s.
  std::chrono::milliseconds timeout;
  // For split(): the call itself also has `timeout`, even if that is the default. If it is false
  // and `timeout` is the default, the call waits as long as an operation of the parent.
  bool timeout_is_given = false;
  std::optional<bool> is_high_priority_stream;  // the hint of the same name has precedence
  c10::intrusive_ptr<c10d::Store> store;        // null: rank discovery finds one
  bool enable_reconfigure = false;  // no members until reconfigure(); for new_comm() only
  std::string name;                 // older API: the name if new_comm() is called without one
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
  // The number of this membership. All members pass the same number, which none of them has used
  // before in this communicator.
  int64_t uuid = 0;
  // A vector gives the order of the ranks; with a set the backend chooses the order.
  std::variant<std::unordered_set<InitHandle>, std::vector<InitHandle>> handles;
  // Of this reconfigure(); positive, and up to 1e9 s. Without a value the communicator's timeout
  // applies.
  std::optional<std::chrono::milliseconds> timeout;
  Hints hints;  // added to the communicator's hints
};

}  // namespace torch::comms
