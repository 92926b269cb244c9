#pragma once

#include "ctran/kernels/host/library.hpp"

// Chooses the algorithm of a call by a table of measurements on Hopper GPUs with NVLink. For more
// ranks than were measured, the rows follow a model of hops and bytes.
namespace torch::comms::ctran::kernels {

struct KernelAlgorithmChoice {
  KernelAlgorithm algorithm;
  int blocks;  // at most
};

// Returns the best algorithm that can run a valid call; kAutomatic if there is none.
KernelAlgorithmChoice choose_algorithm(int ranks, const KernelCall& call);
// Returns what runs a call, which may request an algorithm. kAutomatic: no kernel can run it.
KernelAlgorithmChoice resolve_algorithm(int ranks, const KernelCall& call);
// See KernelFunctionTable::needs_full_workspace.
bool needs_full_workspace(int ranks, const KernelCall& call);

}  // namespace torch::comms::ctran::kernels
