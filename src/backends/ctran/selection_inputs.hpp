#pragma once

#include <string>
#include <vector>

#include <torchcomms/backend.hpp>

#include "ctran/engine/group/engine_group.hpp"
#include "ctran/engine/group/link_context.hpp"
#include "ctran/selection/algorithm_selection.hpp"
#include "ctran/selection/shared_tuning.hpp"

namespace torch::comms::ctran {

// What all ranks of a family know alike, and choose algorithms by. Set while the family is made,
// constant from its first operation on.
struct SelectionInputs {
  LinkPolicy link_policy = LinkPolicy::kAuto;
  std::string host_id;         // what this rank alone calls its host; see LinkContextOptions
  TopologyFacts topology;      // local_ranks and cores of the host where the cores are scarcest
  SharedTuning shared_tuning;  // rank 0's tuning and GPU
};

// Which algorithms a communicator asks for.
struct AlgorithmRequests {
  std::vector<const schedule::Algorithm*> algorithms;  // at most one an operation
  int64_t chunk_bytes = -1;                            // -1: chosen
  bool batch_invariant = false;  // the bits of a sum do not depend on what is beside it

  bool is_any_set() const noexcept {
    return !algorithms.empty() || chunk_bytes >= 0 || batch_invariant;
  }
  AlgorithmRequest request_for(schedule::Operation operation) const noexcept;
};

// The facts of one group. `one_host`: its members share a host.
TopologyFacts topology_facts_of(const SelectionInputs& known, bool one_host, int size) noexcept;

// The engine's question, answered by the model, the tuning file and `known`.
AlgorithmChoice choose_algorithm(const SelectionInputs& known, const ProblemInfo& question);

// Whether the members of a group share a host, and how many follow each other on each: 1 unless
// they are placed host by host, equally many on each.
struct Placement {
  bool is_one_host = true;
  int local_size = 1;
};
Placement placement_of(const EngineGroup& group);

// What runs each operation at each size, for describe().
std::vector<TorchCommBackend::AlgorithmRange> algorithm_ranges(const SelectionInputs& known,
                                                               const EngineGroup& group,
                                                               const AlgorithmRequests& wishes);

}  // namespace torch::comms::ctran
