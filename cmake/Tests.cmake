# C++ unit tests: tests/cpp/<room>/*.cpp become test_<room>, linked from the objects of the room and of the
# rooms it reaches, so that they also see what the shared library hides. Each is one ctest test.

find_package(GTest)
# Tests run from the build folder: they find torch where it is, not where an installed package would.
set(CMAKE_BUILD_WITH_INSTALL_RPATH OFF)
if(NOT GTest_FOUND)
  message(FATAL_ERROR "BUILD_TESTS needs GoogleTest: apt-get install libgtest-dev, or -DBUILD_TESTS=OFF.")
endif()

set(test_headers <gtest/gtest.h> <algorithm> <array> <atomic> <chrono> <condition_variable> <functional> <map>
  <memory> <mutex> <optional> <span> <string> <thread> <vector>)
set(plain_owner "")
set(torch_owner "")
get_property(rooms_with_objects GLOBAL PROPERTY TC_ROOMS)
foreach(name IN LISTS rooms_with_objects)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cpp/${name}/*.cpp")
  if(NOT sources)
    message(STATUS "room ${name}: no tests in tests/cpp/${name}")
    continue()
  endif()
  tc_room_closure(rooms "${name}")
  string(REPLACE "/" "_" test "test_${name}")
  add_executable(${test} ${sources})
  target_link_libraries(${test} PRIVATE tc_options GTest::gtest_main)
  # A test is compiled as its room is.
  tc_room_id(id "${name}")
  target_compile_definitions(${test} PRIVATE $<TARGET_PROPERTY:${id},COMPILE_DEFINITIONS>)
  target_include_directories(${test} PRIVATE "${PROJECT_SOURCE_DIR}/tests/cpp"
    $<TARGET_PROPERTY:${id},INCLUDE_DIRECTORIES>)
  # Half the time of an optimized build; what they test is optimized.
  target_compile_options(${test} PRIVATE -O1)
  # The first test of a kind has the precompiled headers of all of them.
  get_target_property(uses_torch ${id} TC_ROOM_TORCH)
  if(uses_torch)
    target_sources(${test} PRIVATE "${PROJECT_SOURCE_DIR}/tests/cpp/numeric_host_names.cpp")
    tc_join_files(${test})
  endif()
  if(name STREQUAL "backends/gloo")
    target_precompile_headers(${test} PRIVATE <gtest/gtest.h> <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>)
  elseif(uses_torch)
    if(torch_owner)
      target_precompile_headers(${test} REUSE_FROM ${torch_owner})
    else()
      set(torch_owner ${test})
      target_precompile_headers(${test} PRIVATE ${test_headers} <ATen/core/Tensor.h>
        <torch/csrc/distributed/c10d/PrefixStore.hpp>)
    endif()
  elseif(plain_owner)
    target_precompile_headers(${test} REUSE_FROM ${plain_owner})
  else()
    set(plain_owner ${test})
    target_precompile_headers(${test} PRIVATE ${test_headers})
  endif()
  tc_link_rooms(${test} ${rooms})
  add_test(NAME ${test} COMMAND ${test})
  # A test that hangs is a failed test; the sanitizers slow everything by 2 to 15 times.
  set_tests_properties(${test} PROPERTIES TIMEOUT 600
    ENVIRONMENT "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/cpp/lsan.supp;TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/cpp/tsan.supp:die_after_fork=0")
endforeach()

include(cmake/StandIn.cmake)
foreach(test test_vendor test_vendor_blocking_adapter test_backends_nccl test_ctran_team test_ctran_hierarchical
    test_backends_ncclx test_backends_ctran)
  if(TARGET ${test})
    target_compile_definitions(${test} PRIVATE "TC_TEST_STAND_IN_DIR=\"${stand_in_dir}\"")
    add_dependencies(${test} stand_in)
  endif()
endforeach()
tc_vendor_headers(test_vendor)

# Benchmarks are built along, so that they do not rot: bench_<program>, over rooms and what they reach.
set(benchmarks "arithmetic ctran/reduction" "link_latency ctran/engine" "engine ctran/engine"
  "overhead backends/fake" "vendor_overhead backends/nccl" "graph_marks gpu"
  "kernel_plan ctran/kernels")
# bench_versus_mpi_<library> for each MPI library that is here: Debian has both side by side.
find_package(PkgConfig QUIET)
set(mpi_libraries "")
foreach(row IN ITEMS "openmpi ompi-c" "mpich mpich")
  separate_arguments(row)
  list(POP_FRONT row library)
  if(PkgConfig_FOUND)
    pkg_check_modules(tc_${library} QUIET IMPORTED_TARGET ${row})
  endif()
  if(TARGET PkgConfig::tc_${library})
    list(APPEND mpi_libraries ${library})
    list(APPEND benchmarks "versus_mpi_${library} ctran/window ctran/selection")
  endif()
endforeach()
foreach(row IN LISTS benchmarks)
  separate_arguments(row)
  list(POP_FRONT row program)
  string(REGEX REPLACE "^versus_mpi_.*" "versus_mpi" source "${program}")
  add_executable(bench_${program} "${PROJECT_SOURCE_DIR}/benchmarks/cpp/${source}.cpp")
  target_link_libraries(bench_${program} PRIVATE tc_options)
  set(reached "")
  foreach(name IN LISTS row)
    tc_room_id(id "${name}")
    tc_room_closure(rooms "${name}")
    list(APPEND reached ${rooms})
    target_include_directories(bench_${program}
      PRIVATE $<TARGET_PROPERTY:${id},INCLUDE_DIRECTORIES>)
  endforeach()
  list(REMOVE_DUPLICATES reached)
  tc_link_rooms(bench_${program} ${reached})
endforeach()
if(TARGET bench_vendor_overhead)
  target_compile_definitions(bench_vendor_overhead PRIVATE "TC_STAND_IN_DIR=\"${stand_in_dir}\"")
  add_dependencies(bench_vendor_overhead stand_in)
endif()
foreach(library IN LISTS mpi_libraries)
  target_link_libraries(bench_versus_mpi_${library} PRIVATE PkgConfig::tc_${library})
endforeach()

# Backends in shared libraries: one source, right and wrong in one way each, loaded by a test that links
# libtorchcomms.so as an outside program does.
if(TARGET tc_backends_fake)
  set(library_variants right "" no_symbol TC_TEST_NO_SYMBOL null_pointer TC_TEST_NULL_POINTER
    wrong_version TC_TEST_WRONG_VERSION)
  set(library_dir "${PROJECT_BINARY_DIR}/test_libraries")
  while(library_variants)
    list(POP_FRONT library_variants variant definition)
    add_library(fake_test_${variant} SHARED "${PROJECT_SOURCE_DIR}/tests/cpp/library/fake_test_backend.cpp"
      $<TARGET_OBJECTS:tc_backends_fake>)
    target_compile_definitions(fake_test_${variant} PRIVATE ${definition})
    target_link_libraries(fake_test_${variant} PRIVATE tc_options tc_backends_fake_api torchcomms)
    set_target_properties(fake_test_${variant} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${library_dir}")
    list(APPEND library_targets fake_test_${variant})
  endwhile()
  add_executable(test_library "${PROJECT_SOURCE_DIR}/tests/cpp/library/backend_library_test.cpp"
    "${PROJECT_SOURCE_DIR}/tests/cpp/library/public_headers_test.cpp")
  target_compile_definitions(test_library PRIVATE "TC_TEST_LIBRARY_DIR=\"${library_dir}\"")
  target_link_libraries(test_library PRIVATE tc_options tc_core_api torchcomms GTest::gtest_main)
  add_dependencies(test_library ${library_targets})
  add_test(NAME test_library COMMAND test_library)
  set_tests_properties(test_library PROPERTIES TIMEOUT 600)
endif()
