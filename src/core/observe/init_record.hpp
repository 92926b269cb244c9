#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torchcomms/options.hpp>

#include "core/rendezvous/init_handle.hpp"

namespace torch::comms {

// An entry of the event ring that exists while this process is inside a call that waits for peer
// ranks and has not returned a communicator yet. A single rank waits for no peer and is not
// recorded.
class InitRecord {
 public:
  // Records new_comm(), with the rank and size of the launcher. If these are not known, nothing is
  // recorded: the call itself reports the error.
  InitRecord(const std::string& name, const std::string& backend, const CommOptions& options);
  // Records reconfigure().
  InitRecord(const std::string& name, const std::string& backend,
             const ReconfigureMembers& members);
  // Records split() by the rank `rank` of the parent, which is one of `ranks`. `of_parent`: the
  // global ranks of the parent's members; empty if they are not known.
  InitRecord(const std::string& name, const std::string& backend, const std::vector<int>& ranks,
             int rank, const std::vector<int>& of_parent);
  ~InitRecord();
  InitRecord(const InitRecord&) = delete;
  InitRecord& operator=(const InitRecord&) = delete;

 private:
  std::optional<uint32_t> record_id_;
};

}  // namespace torch::comms
