#include "ctran/kernels/host/launcher.hpp"

#include <cstdint>

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

namespace torch::comms::ctran::kernels {
namespace {

LaunchDevice devices[kMostDevices + 1];

// Functions of the driver that replace those of the runtime. The runtime takes 0.1 to 0.3 us of
// each launch to find the device and the kernel on it. Null: the runtime is used.
struct CudaDriverApi {
  decltype(&cuCtxGetCurrent) context = nullptr;
  decltype(&cuLaunchKernelEx) launch = nullptr;

  CudaDriverApi() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) return;
    context = reinterpret_cast<decltype(context)>(::dlsym(library, "cuCtxGetCurrent"));
    launch = reinterpret_cast<decltype(launch)>(::dlsym(library, "cuLaunchKernelEx"));
  }
};
const CudaDriverApi& driver() {
  static const CudaDriverApi found;
  return found;
}

// Returns the current context, which identifies the current device; null if it is unknown.
CUcontext this_context() {
  CUcontext context = nullptr;
  const bool is_known = driver().context != nullptr && driver().context(&context) == CUDA_SUCCESS;
  return is_known ? context : nullptr;
}

// Returns the driver's handle of a kernel on the current device; null: the runtime has to launch
// it.
CUfunction function_of(const void* kernel) {
  struct CachedFunction {
    CUcontext context = nullptr;
    const void* kernel = nullptr;
    CUfunction function = nullptr;
  };
  constexpr size_t kKnown = 64;
  thread_local CachedFunction all[kKnown];
  const CUcontext context = this_context();
  if (context == nullptr || driver().launch == nullptr) return nullptr;
  CachedFunction& known = all[(reinterpret_cast<uintptr_t>(kernel) >> 4) % kKnown];
  if (known.kernel == kernel && known.context == context) return known.function;
  cudaFunction_t function = nullptr;
  if (cudaGetFuncBySymbol(&function, kernel) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  known = {context, kernel, function};
  return function;
}

}  // namespace

LaunchDevice& device_of(int index) {
  return devices[index >= 0 && index < kMostDevices ? index : kMostDevices];
}

const LaunchDevice& this_device() {
  thread_local CUcontext seen = nullptr;
  thread_local const LaunchDevice* device = nullptr;
  const CUcontext context = this_context();
  if (context != nullptr && context == seen) return *device;
  int index = 0;
  if (cudaGetDevice(&index) != cudaSuccess) index = kMostDevices;
  device = &device_of(index);
  seen = context;
  return *device;
}

int enqueue(const void* kernel, void* params, int blocks, int threads, void* stream,
            size_t shared_bytes) {
  const bool is_hopper = this_device().is_hopper.load(std::memory_order_relaxed);
  if (const CUfunction function = function_of(kernel)) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = static_cast<unsigned>(blocks);
    config.blockDimX = static_cast<unsigned>(threads);
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = static_cast<unsigned>(shared_bytes);
    config.hStream = static_cast<CUstream>(stream);
    config.attrs = &attribute;
    config.numAttrs = is_hopper ? 1 : 0;
    const CUresult result = driver().launch(&config, function, &params, nullptr);
    // The driver refuses a stream of another device; the runtime launches the kernel there.
    if (result != CUDA_ERROR_INVALID_HANDLE && result != CUDA_ERROR_INVALID_CONTEXT) return result;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = is_hopper ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel, &params);
}

}  // namespace torch::comms::ctran::kernels
