#if defined(__x86_64__)

#define TC_VECTOR_BYTES 32
#define TC_TARGET __attribute__((target("avx2,f16c")))
#include "ctran/reduction/loops.hpp"

namespace torch::comms::ctran {

constexpr LoopTable kAvx2Loops = make_loop_table();

}  // namespace torch::comms::ctran

#endif
