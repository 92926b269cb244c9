#pragma once

#include "ctran/kernels/host/library.hpp"

// Which algorithm is thought best: a table of what was measured on Hopper GPUs with NVLink, and for
// more ranks than were measured, of what the model of hops and bytes says.
namespace torch::comms::ctran::kernels {

struct KernelAlgorithmChoice {
  KernelAlgorithm algorithm;
  int blocks;  // at most
};

// Of a call that is sound. It fits the call.
KernelAlgorithmChoice choose_algorithm(int ranks, const KernelCall& call);
// What runs a call, which may ask for an algorithm. kAutomatic: nothing does.
KernelAlgorithmChoice resolve_algorithm(int ranks, const KernelCall& call);
// See KernelFunctionTable.
bool needs_full_workspace(int ranks, const KernelCall& call);

}  // namespace torch::comms::ctran::kernels
