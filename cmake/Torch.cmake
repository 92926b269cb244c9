# The torch to build against, as imported targets made from its files.
#
# torch's own CMake package is not used: it needs a CUDA toolkit where torch was built with CUDA, and it
# links libtorch_cuda into everything. Set TORCHCOMMS_TORCH_DIR to build against a torch that is not the
# one of Python_EXECUTABLE.
#
# Sets TC_TORCH_{DIR,VERSION,PUBLIC,MINOR,CUDA,HIP,CXX11_ABI}; makes tc_torch::{c10,torch_cpu,torch_python}.

set(TORCHCOMMS_TORCH_DIR "" CACHE PATH "torch folder to build against; empty: that of Python_EXECUTABLE")

function(tc_probe_torch)
  set(where "")
  if(TORCHCOMMS_TORCH_DIR)
    set(where --dir "${TORCHCOMMS_TORCH_DIR}")
  endif()
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -E "${PROJECT_SOURCE_DIR}/cmake/probe_torch.py" ${where}
    OUTPUT_VARIABLE found ERROR_VARIABLE why RESULT_VARIABLE status)
  if(status)
    string(STRIP "${why}" why)
    message(FATAL_ERROR "${why}. Install torch there, or pass -DTORCHCOMMS_TORCH_DIR=<folder of a torch>.")
  endif()
  string(JSON missing GET "${found}" missing)
  if(NOT missing STREQUAL "[]")
    string(JSON dir GET "${found}" dir)
    message(FATAL_ERROR "The torch in ${dir} cannot be built against; it lacks ${missing}.")
  endif()
  foreach(key dir version public minor cuda hip cxx11_abi)
    string(JSON value GET "${found}" ${key})
    string(TOUPPER ${key} upper)
    set(TC_TORCH_${upper} "${value}" PARENT_SCOPE)
  endforeach()
endfunction()

tc_probe_torch()
# Another torch in the same place means another build.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${TC_TORCH_DIR}/version.py")

foreach(library c10 torch_cpu torch_python)
  add_library(tc_torch::${library} SHARED IMPORTED)
  set_target_properties(tc_torch::${library} PROPERTIES
    IMPORTED_LOCATION "${TC_TORCH_DIR}/lib/lib${library}.so"
    INTERFACE_INCLUDE_DIRECTORIES
      "${TC_TORCH_DIR}/include;${TC_TORCH_DIR}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;_GLIBCXX_USE_CXX11_ABI=${TC_TORCH_CXX11_ABI}")
endforeach()
target_link_libraries(tc_torch::torch_cpu INTERFACE tc_torch::c10)
target_link_libraries(tc_torch::torch_python INTERFACE tc_torch::torch_cpu)

# Lets a source see torch's caching allocator of CUDA, where torch has it and CUDA's headers are beside torch or in a
# toolkit: TC_CUDA_ALLOCATOR.
function(tc_see_cuda_allocator source)
  tc_find_cuda_headers(headers)
  if(headers AND EXISTS "${TC_TORCH_DIR}/include/c10/cuda/impl/cuda_cmake_macros.h")
    list(TRANSFORM headers PREPEND "-isystem;")
    set_source_files_properties("${PROJECT_SOURCE_DIR}/${source}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON
      COMPILE_DEFINITIONS TC_CUDA_ALLOCATOR COMPILE_OPTIONS "${headers}")
  endif()
endfunction()
