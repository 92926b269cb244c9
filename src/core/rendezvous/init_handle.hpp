#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>
#include <torchcomms/types.hpp>

#include "bootstrap/timeout.hpp"

namespace torch::comms {

// What an init handle says: which communicator of which process, and where its members meet. As
// text "gloo:<rank>:<uuid>:<host>:<port>:<version>:<identity>", with -1 for what is unknown. The
// host may hold colons; "@<loopback>" follows it where the member serves the store itself.
struct TC_API InitHandleInfo {
  std::string backend;    // "ctran"; members have the same one
  int rank = -1;          // in the membership that was connected last
  int64_t uuid = -1;      // of that
  std::string host = {};  // of the TCPStore where the members meet; "": a store of another kind
  int port = -1;
  // A hash, equal for processes that reach each other by 127.0.0.1, of the one that serves the
  // store. 0: the member does not serve it itself.
  uint64_t loopback = 0;
  uint64_t identity = 0;  // of this communicator alone: nobody else draws the same number

  static constexpr int kVersion = 2;

  InitHandle to_text() const;
  // Of a store, as error texts call it: "tcp://host:port"; others have none.
  void set_store_address(std::string_view address);
  // Whether both have an address, and the same.
  bool has_same_address(const InitHandleInfo& other) const noexcept;
};

// Throws CommError(kInvalidArgument), without context, for a text that no backend of this name and
// version wrote.
TC_API InitHandleInfo parse_init_handle(std::string_view text, std::string_view backend);

// Of a set, whose order everybody must find alike: connected members as they were, then the others.
TC_API bool is_ordered_before(const InitHandleInfo& a, const InitHandleInfo& b) noexcept;

// Who is to be connected by one reconfigure().
struct ReconfigureMembers {
  int64_t uuid = 0;
  std::vector<InitHandleInfo> handles;  // by rank
  int rank = -1;                        // of this one
  bootstrap::NamedTimeout timeout = {};
  uint64_t abort_count = 0;  // how many abort() calls there were before this reconfigure()

  int size() const noexcept { return static_cast<int>(handles.size()); }
  // Hashes, equal on all of them: of the list, and of that and the uuid, which no other
  // reconfigure() has.
  uint64_t list_hash() const noexcept;
  uint64_t identity() const noexcept;
};

}  // namespace torch::comms
