#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torchcomms/options.hpp>

#include "core/rendezvous/init_handle.hpp"

namespace torch::comms {

// In the recorder while it lives: this process is inside a call that waits for other ranks, and has
// no communicator from it yet. A rank alone waits for nobody, and is not recorded.
class InitRecord {
 public:
  // Of new_comm(): rank and size are the launcher's. Without them nothing is recorded: who needs
  // them says what is wrong.
  InitRecord(const std::string& name, const std::string& backend, const CommOptions& options);
  // Of reconfigure().
  InitRecord(const std::string& name, const std::string& backend,
             const ReconfigureMembers& members);
  // Of next_split(), as `rank` of the parent, one of these. `of_parent`: its members' global ranks;
  // empty where they are not known.
  InitRecord(const std::string& name, const std::string& backend, const std::vector<int>& ranks,
             int rank, const std::vector<int>& of_parent);
  ~InitRecord();
  InitRecord(const InitRecord&) = delete;
  InitRecord& operator=(const InitRecord&) = delete;

 private:
  std::optional<uint32_t> record_id_;
};

}  // namespace torch::comms
