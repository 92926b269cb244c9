# The C functions of include/torchcomms/device/symbols.hpp as a library of LLVM bitcode, which compilers of
# kernels link, as Triton does: torchcomms/triton/libtorchcomms_device.bc. Built where there is a clang with the
# target and llvm-as beside it; nothing of CUDA is needed.

find_program(TC_DEVICE_CLANG NAMES clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14)
find_program(TC_LLVM_AS NAMES llvm-as llvm-as-19 llvm-as-18 llvm-as-17 llvm-as-16 llvm-as-15 llvm-as-14)
mark_as_advanced(TC_DEVICE_CLANG TC_LLVM_AS)

if(NOT TC_DEVICE_CLANG OR NOT TC_LLVM_AS)
  message(STATUS "device library: not built, no clang++ with llvm-as is here")
  return()
endif()
execute_process(COMMAND "${TC_DEVICE_CLANG}" -print-targets OUTPUT_VARIABLE targets ERROR_QUIET)
if(NOT targets MATCHES "nvptx64")
  message(STATUS "device library: not built, ${TC_DEVICE_CLANG} has no target nvptx64")
  return()
endif()

set(device_source "${PROJECT_SOURCE_DIR}/include/torchcomms/device/symbols.hpp")
set(device_text "${PROJECT_BINARY_DIR}/kernels/torchcomms_device.ll")
set(device_library "${PROJECT_BINARY_DIR}/kernels/libtorchcomms_device.bc")
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/kernels")
add_custom_command(OUTPUT "${device_library}" VERBATIM
  # What the functions need is there since sm_70; they are compiled for whom they are linked to.
  COMMAND "${TC_DEVICE_CLANG}" -std=c++17 -O3 --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_70
    -Wall -Wextra -Werror -Wno-pragma-once-outside-header -Wno-unknown-cuda-version
    -I "${PROJECT_SOURCE_DIR}/include" -MD -MF "${device_text}.d" -MT "${device_library}"
    -S -emit-llvm -x cuda "${device_source}" -o "${device_text}"
  COMMAND "${CMAKE_COMMAND}" "-DTEXT=${device_text}" -P "${PROJECT_SOURCE_DIR}/cmake/device_library.cmake"
  COMMAND "${TC_LLVM_AS}" "${device_text}" -o "${device_library}"
  DEPENDS "${device_source}" "${PROJECT_SOURCE_DIR}/cmake/device_library.cmake" DEPFILE "${device_text}.d"
  COMMENT "Building the device library")
add_custom_target(torchcomms_device_library ALL DEPENDS "${device_library}")
if(TARGET package)
  add_dependencies(package torchcomms_device_library)
  install(FILES "${device_library}" DESTINATION torchcomms/triton COMPONENT torchcomms)
endif()
message(STATUS "device library: ${TC_DEVICE_CLANG}")
