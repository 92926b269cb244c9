# Fuzz targets: tests/fuzz/<name>_fuzz.cpp becomes fuzz_<name>, over a room and what it reaches, with
# libFuzzer, which clang alone has. Each is a test of 1,000,000 executions that begins with
# tests/fuzz/corpus/<name>; what it learns stays in the build folder. A parser of what others may
# write gets a row here; a third word names the one file of the room that is built, over room base,
# for a room with torch.
set(fuzz_targets
  "control ctran/engine" "endpoint transport/tcp" "exchange bootstrap/address_exchange" "frames transport"
  "member_handle core rendezvous/init_handle" "ring transport/shm" "tuning ctran/selection")

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "TORCHCOMMS_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++")
endif()
set(fuzz_flags -fsanitize=fuzzer,address,undefined)
enable_testing()
add_custom_target(fuzz)

foreach(row IN LISTS fuzz_targets)
  separate_arguments(row)
  list(GET row 0 name)
  list(GET row 1 room)
  tc_room_closure(rooms "${room}")
  set(target "fuzz_${name}")
  add_executable(${target} EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/fuzz/${name}_fuzz.cpp")
  add_dependencies(fuzz ${target})
  target_link_libraries(${target} PRIVATE tc_options)
  tc_room_id(id "${room}")
  target_include_directories(${target} PRIVATE $<TARGET_PROPERTY:${id},INCLUDE_DIRECTORIES>)
  target_compile_options(${target} PRIVATE ${fuzz_flags})
  target_link_options(${target} PRIVATE ${fuzz_flags})
  list(LENGTH row words)
  if(words EQUAL 3)
    list(GET row 2 file)
    set(rooms base)
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src/${room}/${file}.cpp")
    target_link_libraries(${target} PRIVATE ${id}_api)
  endif()
  tc_link_rooms(${target} ${rooms})
  set(learnt "${PROJECT_BINARY_DIR}/corpus/${name}")
  file(MAKE_DIRECTORY "${learnt}")
  add_test(NAME ${target} COMMAND ${target} -runs=1000000 -max_len=4096 -timeout=10
    -print_final_stats=1 "-artifact_prefix=${PROJECT_BINARY_DIR}/${name}-"
    "${learnt}" "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
  set_tests_properties(${target} PROPERTIES TIMEOUT 600)
endforeach()
