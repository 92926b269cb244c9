# The stand-in: a shared library of ours with the C interface of NCCL (and of oneCCL), for host memory. It
# lets the backends over vendors' libraries run, and be tested, where there is no GPU. Nothing installs it.
#
# tests/standin/*.cpp become stand_in/lib<variant>.so in the build folder.

set(stand_in_dir "${PROJECT_BINARY_DIR}/stand_in")
file(GLOB stand_in_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/standin/*.cpp")
list(REMOVE_ITEM stand_in_sources "${PROJECT_SOURCE_DIR}/tests/standin/api.cpp")
add_library(stand_in_objects OBJECT ${stand_in_sources})
target_link_libraries(stand_in_objects PRIVATE tc_options tc_gpu_api tc_vendor_api)
target_compile_options(stand_in_objects PRIVATE -O1)
target_include_directories(stand_in_objects SYSTEM PRIVATE "${TC_TORCH_DIR}/include") # number formats
target_include_directories(stand_in_objects PRIVATE "${PROJECT_SOURCE_DIR}/tests")

# The target <id> is the library <file> of <sources>, which sees the rooms' interfaces <apis>. Files are called
# as a vendor's are, so that they are also found among the libraries of a process.
add_custom_target(stand_in ALL)
function(tc_stand_in_library id file)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;APIS;DEFINITIONS")
  add_library(${id} SHARED ${arg_SOURCES} $<TARGET_OBJECTS:tc_gpu> $<TARGET_OBJECTS:tc_base>)
  target_compile_definitions(${id} PRIVATE ${arg_DEFINITIONS})
  target_link_libraries(${id} PRIVATE tc_options ${arg_APIS})
  target_include_directories(${id} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  set_target_properties(${id} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${stand_in_dir}"
    PREFIX "" OUTPUT_NAME "${file}" SUFFIX "")
  add_dependencies(stand_in ${id})
endfunction()

function(tc_stand_in file prefix)
  string(REGEX REPLACE "[^a-z0-9]" "_" id "stand_in_${file}")
  tc_stand_in_library(${id} ${file} APIS tc_gpu_api tc_vendor_api
    SOURCES "${PROJECT_SOURCE_DIR}/tests/standin/api.cpp" $<TARGET_OBJECTS:stand_in_objects>
    DEFINITIONS "TC_STANDIN_PREFIX=${prefix}" ${ARGN})
endfunction()

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

# The library of device kernels, for host memory: tests/standin/kernels/*.cpp.
file(GLOB kernel_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/standin/kernels/*.cpp")
function(tc_stand_in_kernels file)
  string(REGEX REPLACE "[^a-z0-9]" "_" id "stand_in_${file}")
  tc_stand_in_library(${id} ${file} APIS tc_gpu_api tc_ctran_kernels_api
    SOURCES ${kernel_sources} "${PROJECT_SOURCE_DIR}/tests/standin/plan.cpp"
      $<TARGET_OBJECTS:tc_ctran_reduction> $<TARGET_OBJECTS:tc_ctran_kernels>
    DEFINITIONS ${ARGN})
endfunction()
tc_stand_in_kernels(libstand_in_kernels.so)
tc_stand_in_kernels(libstand_in_kernels_other.so TC_STANDIN_OTHER_ABI)
