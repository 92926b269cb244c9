#pragma once

// TC_BOTH marks functions of the device that tests compare with the rest of the library on the
// host.
#if defined(__CUDACC__)
#define TC_BOTH __host__ __device__ __forceinline__
#else
#define TC_BOTH inline
#endif

#if defined(__CUDA_ARCH__)
#define TC_UNROLL _Pragma("unroll")
#else
#define TC_UNROLL
#endif
