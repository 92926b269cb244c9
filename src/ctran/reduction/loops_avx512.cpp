#if defined(__x86_64__)

#define TC_VECTOR_BYTES 64
#define TC_TARGET __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")))
#include "ctran/reduction/loops.hpp"

namespace torch::comms::ctran {

constexpr LoopTable kAvx512Loops = make_loop_table();

}  // namespace torch::comms::ctran

#endif
