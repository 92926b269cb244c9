#pragma once

namespace torchcomms::device {

// NVRTC has no <cstdint>.
using uint8_t = unsigned char;
using int32_t = int;
using uint32_t = unsigned int;
#if defined(__UINT64_TYPE__)
using uint64_t = __UINT64_TYPE__;
#else
using uint64_t = unsigned long;
#endif
static_assert(sizeof(uint64_t) == 8 && sizeof(void*) == 8);

}  // namespace torchcomms::device
