#pragma once

#include <string>
#include <vector>

#include <torchcomms/backend.hpp>

#include "ctran/engine/group/engine_group.hpp"
#include "ctran/engine/group/link_context.hpp"
#include "ctran/selection/algorithm_selection.hpp"
#include "ctran/selection/shared_tuning.hpp"

namespace torch::comms::ctran {

// The values by which all ranks of a link context choose algorithms. They are set while the links
// are connected, and constant from the first operation on.
struct SelectionInputs {
  LinkPolicy link_policy = LinkPolicy::kAuto;
  std::string host_id;         // this rank's own name for its host; see LinkContextOptions
  TopologyFacts topology;      // of the most oversubscribed host
  SharedTuning shared_tuning;  // rank 0's tuning and GPU
};

// The algorithms that the hints of a communicator request.
struct AlgorithmRequests {
  std::vector<const schedule::Algorithm*> algorithms;  // at most one per operation
  int64_t chunk_bytes = -1;                            // -1: selected automatically
  bool batch_invariant = false;  // the bits of a sum do not depend on other elements

  bool is_any_set() const noexcept {
    return !algorithms.empty() || chunk_bytes >= 0 || batch_invariant;
  }
  AlgorithmRequest request_for(schedule::Operation operation) const noexcept;
};

// Returns: the topology facts of one group. `one_host`: its members share a host.
TopologyFacts topology_facts_of(const SelectionInputs& inputs, bool one_host, int size) noexcept;

// Returns: the algorithm for the engine's `info`, chosen by the cost model, the tuning file and
// `inputs`.
AlgorithmChoice choose_algorithm(const SelectionInputs& inputs, const ProblemInfo& info);

// Whether the members of a group share a host, and the number of consecutive ranks on each host.
// The number is 1 unless the ranks are ordered by host with equally many ranks on each.
struct Placement {
  bool is_one_host = true;
  int local_size = 1;
};
Placement placement_of(const EngineGroup& group);

// Returns: the algorithm of each operation at each size, for describe().
std::vector<TorchCommBackend::AlgorithmRange> algorithm_ranges(const SelectionInputs& inputs,
                                                               const EngineGroup& group,
                                                               const AlgorithmRequests& requests);

}  // namespace torch::comms::ctran
