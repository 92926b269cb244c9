#pragma once

#include "ctran/kernels/library.hpp"

// Which algorithm is thought best: a table of what was measured on Hopper GPUs with NVLink, and for
// more ranks than were measured, of what the model of hops and bytes says.
namespace torch::comms::ctran::kernels {

struct Choice {
  Algorithm algorithm;
  int blocks;  // at most
};

// Of a call that is sound. It fits the call.
Choice choose(int ranks, const Call& call);
// What runs a call, which may ask for an algorithm. kAutomatic: nothing does.
Choice chosen(int ranks, const Call& call);
// See Library.
bool needs_rest(int ranks, const Call& call);

}  // namespace torch::comms::ctran::kernels
