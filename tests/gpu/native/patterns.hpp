#pragma once

#include <cstddef>
#include <vector>

#include "ctran/kernels/host/library.hpp"

// Who sends what to whom where messages are measured. Elements are of 2 bytes.
namespace native {

namespace kernels = torch::comms::ctran::kernels;

enum class Pattern : unsigned char {
  kSend,      // rank 0 to rank 1
  kSendRecv,  // ranks 0 and 1, 2 and 3, to each other
  kAllToAll,  // parts of uneven lengths, of all to all others
};

// What one rank's output has at `to` is another one's input at `from`.
struct Part {
  size_t from, to, count;
};

struct Traffic {
  Pattern pattern;
  int ranks;
  size_t count;  // of a rank's input and output

  // Of nothing where count is 0.
  Part part(int source, int receiver) const;
  std::vector<kernels::KernelMessage> messages(int rank, char* input, char* output) const;
};

}  // namespace native
