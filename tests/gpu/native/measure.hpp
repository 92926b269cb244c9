#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "world.hpp"

namespace native {

struct Measuring {
  int ranks = 2;
  size_t least_bytes = 1024, most_bytes = size_t{256} << 20;
  std::vector<std::string> collectives;
  std::vector<int> blocks;  // besides the library's own number
  bool all_algorithms = false;
  int rounds = 11;
  std::string nccl;  // its library
  std::string json;  // a file for one line a point
};

// Times calls in graphs, ours beside NCCL's in turn, and prints a table. Throws if a result is
// wrong.
void measure(const kernels::KernelFunctionTable& library, const Measuring& measuring);

}  // namespace native
