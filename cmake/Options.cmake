# Compiler options of our own targets: tc_options is linked privately into each of them.

set(TORCHCOMMS_SANITIZE "" CACHE STRING "sanitizers, comma separated: address,undefined or thread")
option(TORCHCOMMS_WERROR "make warnings errors (the presets do; a user's compiler may be newer)" OFF)

add_library(tc_options INTERFACE)
target_compile_features(tc_options INTERFACE cxx_std_20)
target_compile_options(tc_options INTERFACE -Wall -Wextra -Wpedantic
  "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
if(TORCHCOMMS_WERROR)
  target_compile_options(tc_options INTERFACE -Werror)
endif()
target_compile_definitions(tc_options INTERFACE TORCHCOMMS_VERSION="${PROJECT_VERSION}")
target_link_libraries(tc_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
# A library names only what it calls, so that it loads where the rest is missing.
target_link_options(tc_options INTERFACE -Wl,--as-needed)

if(TORCHCOMMS_SANITIZE)
  set(flags "-fsanitize=${TORCHCOMMS_SANITIZE}" -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_compile_options(tc_options INTERFACE ${flags})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # It sees uninitialised variables in what the sanitizers insert.
    target_compile_options(tc_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(tc_options INTERFACE ${flags})
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Line tables are enough for a backtrace; full debug information of torch's headers is 50 times the code.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
if(TORCHCOMMS_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1") # compiles in half the time
endif()
set(CMAKE_INSTALL_RPATH "$ORIGIN;$ORIGIN/../torch/lib")
if(CMAKE_BUILD_WITH_INSTALL_RPATH)
  # The development stage links to what is built, and torch is not beside it.
  list(APPEND CMAKE_INSTALL_RPATH "${TC_TORCH_DIR}/lib")
endif()

find_program(TC_CCACHE ccache)
mark_as_advanced(TC_CCACHE)
if(TC_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers and clones at other paths miss the cache without these.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
    "CCACHE_IGNOREOPTIONS=-fmacro-prefix-map=*" "${TC_CCACHE}")
endif()
