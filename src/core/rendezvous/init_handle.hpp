#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>
#include <torchcomms/types.hpp>

#include "bootstrap/timeout.hpp"

namespace torch::comms {

// The content of an init handle: which communicator of which process it names, and where its
// members meet. Its text is "gloo:<rank>:<uuid>:<host>:<port>:<version>:<identity>", with -1 for
// unknown values. The host may contain colons. "@<loopback>" follows the host if the member serves
// the store itself.
struct TC_API InitHandleInfo {
  std::string backend;    // "ctran"; all members have the same
  int rank = -1;          // rank in the last membership that was connected
  int64_t uuid = -1;      // uuid of that membership
  std::string host = {};  // host of the TCPStore where the members meet; "": another kind of store
  int port = -1;
  // A hash that is equal for processes that can reach each other by 127.0.0.1. It belongs to the
  // process that serves the store. 0: the member does not serve the store itself.
  uint64_t loopback = 0;
  uint64_t identity = 0;  // a random number of this communicator

  static constexpr int kVersion = 2;

  InitHandle to_text() const;
  // Sets host and port from a store address of the form "tcp://host:port"; other addresses are
  // ignored.
  void set_store_address(std::string_view address);
  // Returns: whether both have an address and the two are equal.
  bool has_same_address(const InitHandleInfo& other) const noexcept;
};

// Parses an init handle.
// Throws: CommError(kInvalidArgument) without context, if no backend of this name and version wrote
// the text.
TC_API InitHandleInfo parse_init_handle(std::string_view text, std::string_view backend);

// The order of the members of a set, which all members must compute equally: connected members by
// their ranks, then the others by identity.
TC_API bool is_ordered_before(const InitHandleInfo& a, const InitHandleInfo& b) noexcept;

// The members that one reconfigure() connects.
struct ReconfigureMembers {
  int64_t uuid = 0;
  std::vector<InitHandleInfo> handles;  // by rank
  int rank = -1;                        // rank of this member
  bootstrap::NamedTimeout timeout = {};
  uint64_t abort_count = 0;  // number of abort() calls before this reconfigure()

  int size() const noexcept { return static_cast<int>(handles.size()); }
  // Hashes that are equal on all members: list_hash() of the list, identity() of the list and the
  // uuid. No other reconfigure() has the same identity.
  uint64_t list_hash() const noexcept;
  uint64_t identity() const noexcept;
};

}  // namespace torch::comms
