# The stand-in: a shared library of ours with the C interface of NCCL (and of oneCCL), for host memory. It
# lets the backends over vendors' libraries run, and be tested, where there is no GPU. Nothing installs it.
#
# tests/standin/*.cpp become stand_in/lib<variant>.so in the build folder.

set(stand_in_dir "${PROJECT_BINARY_DIR}/stand_in")
file(GLOB stand_in_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/standin/*.cpp")
list(REMOVE_ITEM stand_in_sources "${PROJECT_SOURCE_DIR}/tests/standin/api.cpp")
add_library(stand_in_objects OBJECT ${stand_in_sources})
target_link_libraries(stand_in_objects PRIVATE tc_options tc_gpu_api tc_nccl_api)
target_include_directories(stand_in_objects SYSTEM PRIVATE "${TC_TORCH_DIR}/include") # number formats
target_include_directories(stand_in_objects PRIVATE "${PROJECT_SOURCE_DIR}/tests")

# Files are called as a vendor's are, so that they are also found among the libraries of a process.
function(tc_stand_in file prefix)
  string(REGEX REPLACE "[^a-z0-9]" "_" target "stand_in_${file}")
  add_library(${target} SHARED "${PROJECT_SOURCE_DIR}/tests/standin/api.cpp"
    $<TARGET_OBJECTS:stand_in_objects> $<TARGET_OBJECTS:tc_gpu> $<TARGET_OBJECTS:tc_base>)
  target_compile_definitions(${target} PRIVATE "TC_STANDIN_PREFIX=${prefix}" ${ARGN})
  target_link_libraries(${target} PRIVATE tc_options tc_gpu_api tc_nccl_api)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${stand_in_dir}"
    PREFIX "" OUTPUT_NAME "${file}" SUFFIX "")
  add_dependencies(stand_in ${target})
endfunction()

add_custom_target(stand_in ALL)
tc_stand_in(libstand_in_nccl.so nccl)
tc_stand_in(libstand_in_nccl_old.so nccl TC_STANDIN_OLD)
tc_stand_in(libstand_in_nccl_broken.so nccl TC_STANDIN_BROKEN)
tc_stand_in(libstand_in_nccl_device.so nccl TC_STANDIN_DEVICE)
tc_stand_in(libstand_in_oneccl.so oneccl TC_STANDIN_ONECCL)

# Lets a test see the real nccl.h, where one is with what it includes: in the packages beside torch, or in a
# CUDA toolkit.
function(tc_vendor_headers test)
  include(CheckCXXSourceCompiles)
  cmake_path(GET TC_TORCH_DIR PARENT_PATH site)
  file(GLOB places "${site}/nvidia/nccl/include" "${site}/nvidia/cu1*/include" "/usr/local/cuda/include")
  set(CMAKE_REQUIRED_INCLUDES ${places})
  set(CMAKE_REQUIRED_QUIET ON)
  check_cxx_source_compiles("#include <nccl.h>\nint main() { return 0; }" TC_HAS_NCCL_HEADER)
  if(TC_HAS_NCCL_HEADER)
    target_compile_definitions(${test} PRIVATE TC_TEST_NCCL_HEADER)
    target_include_directories(${test} SYSTEM PRIVATE ${places})
  endif()
endfunction()
