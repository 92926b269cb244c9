# The library of GPU kernels: src/ctran/kernels/*/*.cu, compiled by nvcc into libtorchcomms_kernels_cuda.so, which
# is loaded at first use and needs no CUDA library beside the driver's. Without an nvcc it is left out.
#
# nvcc is called by name and not made a language of the project, for the one of PyPI's nvidia-cuda-nvcc lacks
# parts of a toolkit that CMake looks for.

set(TORCHCOMMS_CUDA_ARCHITECTURES "" CACHE STRING
  "what to compile GPU kernels for, as in CMAKE_CUDA_ARCHITECTURES; empty: as TORCH_CUDA_ARCH_LIST, else for this machine's GPUs")
set(TORCHCOMMS_GPU_KERNELS AUTO CACHE STRING
  "AUTO: GPU kernels are built where there is an nvcc and it is known what for; ON: else for 80-real;90-real;100; OFF: never")
include("${CMAKE_CURRENT_LIST_DIR}/CudaArchitectures.cmake")
# Builds them where they can be built, and nothing elsewhere.
add_custom_target(gpu_kernels)

cmake_path(GET TC_TORCH_DIR PARENT_PATH tc_site)
file(GLOB tc_nvcc_of_pip "${tc_site}/nvidia/cu1*/bin" "${tc_site}/nvidia/cuda_nvcc/bin")
find_program(TC_NVCC NAMES "$ENV{CUDACXX}" nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin ${tc_nvcc_of_pip}
  PATH_SUFFIXES bin)
mark_as_advanced(TC_NVCC)

# The runtime library beside nvcc, or that of pip.
function(tc_find_cudart out first)
  file(GLOB roots "${tc_site}/nvidia/cu1*" "${tc_site}/nvidia/cuda_runtime" /usr/local/cuda /usr/local/cuda/targets/*)
  find_library(TC_CUDART libcudart_static.a HINTS ${first} ${roots} PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
  mark_as_advanced(TC_CUDART)
  set(${out} "${TC_CUDART}" PARENT_SCOPE)
endfunction()

function(tc_add_kernels cudart include)
  tc_cuda_architectures(architectures)
  if(NOT architectures)
    message(STATUS "GPU kernels: not built, no GPU is here; TORCH_CUDA_ARCH_LIST or -DTORCHCOMMS_CUDA_ARCHITECTURES=90-real say what for")
    return()
  endif()
  set(flags -std=c++20 -O3 --expt-relaxed-constexpr
    -fmad=false # a sum of products rounds the same on every rank, whether or not it is added to
    -Xfatbin=-compress-all -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra -I "${PROJECT_SOURCE_DIR}/include")
  if(TORCHCOMMS_WERROR)
    list(APPEND flags -Werror all-warnings)
  endif()
  set(names "")
  foreach(architecture IN LISTS architectures)
    string(REGEX MATCH "^[0-9]+[a-z]?" number "${architecture}")
    if(NOT architecture MATCHES "-virtual$")
      list(APPEND flags "-gencode=arch=compute_${number},code=sm_${number}")
      list(APPEND names "sm_${number}")
    endif()
    if(NOT architecture MATCHES "-real$")
      list(APPEND flags "-gencode=arch=compute_${number},code=compute_${number}")
      list(APPEND names "compute_${number}")
    endif()
  endforeach()
  list(JOIN names " " names)
  foreach(room ctran/kernels ctran/reduction)
    tc_include_root(root "${room}")
    list(APPEND flags -I "${root}")
  endforeach()

  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/ctran/kernels/*/*.cu")
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/kernels")
  set(objects "")
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    set(object "${PROJECT_BINARY_DIR}/kernels/${name}.o")
    add_custom_command(OUTPUT "${object}" VERBATIM
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${TC_NVCC}" ${flags} "-DTC_CUDA_ARCHITECTURES=\"${names}\""
        -MD -MF "${object}.d" -MT "${object}" -c "${source}" -o "${object}"
      DEPENDS "${source}" DEPFILE "${object}.d"
      COMMENT "Building GPU kernels ${name}")
    list(APPEND objects "${object}")
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)

  add_library(torchcomms_kernels_cuda SHARED ${objects}
    "${PROJECT_SOURCE_DIR}/src/ctran/reduction/dtype.cpp" $<TARGET_OBJECTS:tc_ctran_kernels>)
  target_link_libraries(torchcomms_kernels_cuda PRIVATE tc_options tc_ctran_kernels_api "${cudart}" rt)
  set(exports "${PROJECT_SOURCE_DIR}/cmake/kernels.map")
  target_link_options(torchcomms_kernels_cuda PRIVATE "-Wl,--version-script=${exports}")
  set_target_properties(torchcomms_kernels_cuda PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS "${exports}")
  add_dependencies(gpu_kernels torchcomms_kernels_cuda)
  if(TARGET package)
    add_dependencies(package torchcomms_kernels_cuda)
    install(TARGETS torchcomms_kernels_cuda LIBRARY DESTINATION torchcomms COMPONENT torchcomms)
  endif()

  # For machines with GPUs; everywhere it is at least compiled.
  if(BUILD_TESTS)
    file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/gpu/native/*.cpp")
    add_executable(torchcomms_kernels_test EXCLUDE_FROM_ALL ${sources})
    tc_room_closure(rooms ctran/kernels)
    tc_link_rooms(torchcomms_kernels_test ${rooms})
    target_include_directories(torchcomms_kernels_test PRIVATE "${PROJECT_SOURCE_DIR}/tests/cpp")
    target_include_directories(torchcomms_kernels_test SYSTEM PRIVATE ${include})
    target_link_libraries(torchcomms_kernels_test PRIVATE tc_options "${cudart}" rt)
    add_dependencies(gpu_kernels torchcomms_kernels_test)
  endif()
  message(STATUS "GPU kernels: ${TC_NVCC} for ${names}")
endfunction()

if(NOT TORCHCOMMS_GPU_KERNELS OR TORCHCOMMS_SANITIZE)
  message(STATUS "GPU kernels: not built in this configuration")
elseif(NOT TC_NVCC)
  message(STATUS "GPU kernels: not built, no nvcc in CUDACXX, PATH, /usr/local/cuda or beside torch (pip install nvidia-cuda-nvcc)")
else()
  tc_nvcc_folders(tc_nvcc_places "${TC_NVCC}")
  tc_find_cudart(tc_cudart "${tc_nvcc_places}")
  tc_find_cuda_headers(tc_cuda_include FIRST ${tc_nvcc_places})
  if(tc_cudart AND tc_cuda_include)
    tc_add_kernels("${tc_cudart}" "${tc_cuda_include}")
  else()
    message(STATUS "GPU kernels: not built, ${TC_NVCC} has no libcudart_static.a, cuda_runtime.h or crt/host_config.h beside it")
  endif()
endif()
