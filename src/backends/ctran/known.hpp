#pragma once

#include <string>
#include <vector>

#include <torchcomms/backend.hpp>

#include "ctran/engine/engine_group.hpp"
#include "ctran/engine/link_context.hpp"
#include "ctran/select/algorithm_selection.hpp"
#include "ctran/select/shared_tuning.hpp"

namespace torch::comms::ctran {

// What all ranks of a family know alike, and choose algorithms by. Set while the family is made,
// constant from its first operation on.
struct Known {
  LinkPolicy links = LinkPolicy::kAuto;
  std::string host;       // what this rank alone calls its host; see LinkContextOptions
  TopologyFacts machine;  // local_ranks and cores of the host where the cores are scarcest
  SharedTuning told;      // rank 0's tuning and GPU
};

// Which algorithms a communicator asks for.
struct Wishes {
  std::vector<const schedule::Algorithm*> algorithms;  // at most one an operation
  int64_t chunk_bytes = -1;                            // -1: chosen
  bool batch_invariant = false;  // the bits of a sum do not depend on what is beside it

  bool any() const noexcept { return !algorithms.empty() || chunk_bytes >= 0 || batch_invariant; }
  AlgorithmRequest of(schedule::Operation operation) const noexcept;
};

// The facts of one group. `one_host`: its members share a host.
TopologyFacts facts_of(const Known& known, bool one_host, int size) noexcept;

// The engine's question, answered by the model, the tuning file and `known`.
AlgorithmChoice answer(const Known& known, const ProblemInfo& question);

// Whether the members of a group share a host, and how many follow each other on each: 1 unless
// they are placed host by host, equally many on each.
struct Placement {
  bool one_host = true;
  int local_size = 1;
};
Placement placement_of(const EngineGroup& group);

// What runs each operation at each size, for describe().
std::vector<TorchCommBackend::AlgorithmRange> algorithm_ranges(const Known& known,
                                                               const EngineGroup& group,
                                                               const Wishes& wishes);

}  // namespace torch::comms::ctran
