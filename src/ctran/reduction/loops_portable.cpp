// Loops with vectors of 16 bytes, which every compiler supports: SSE2 on x86-64 and NEON on
// aarch64, which are always there, and scalar code elsewhere.
#define TC_VECTOR_BYTES 16
#define TC_TARGET
#include "ctran/reduction/loops.hpp"

namespace torch::comms::ctran {

constexpr LoopTable kPortableLoops = make_loop_table();

}  // namespace torch::comms::ctran
