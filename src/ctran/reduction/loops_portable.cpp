// Vectors of 16 bytes, which every compiler can express: SSE2 on x86-64 and NEON on aarch64, where
// either is always there, and plain arithmetic elsewhere.
#define TC_VECTOR_BYTES 16
#define TC_TARGET
#include "ctran/reduction/loops.hpp"

namespace torch::comms::ctran {

constexpr LoopTable kPortableLoops = make_loop_table();

}  // namespace torch::comms::ctran
