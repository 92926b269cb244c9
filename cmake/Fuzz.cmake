# Fuzz targets: tests/fuzz/<name>_fuzz.cpp become fuzz_<name>, with libFuzzer, which clang alone has.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "TORCHCOMMS_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++")
endif()

add_executable(fuzz_exchange "${PROJECT_SOURCE_DIR}/tests/fuzz/exchange_fuzz.cpp")
target_link_libraries(fuzz_exchange PRIVATE tc_options)
target_compile_options(fuzz_exchange PRIVATE -fsanitize=fuzzer,address,undefined)
target_link_options(fuzz_exchange PRIVATE -fsanitize=fuzzer,address,undefined)
tc_room_closure(rooms bootstrap/exchange)
tc_link_rooms(fuzz_exchange ${rooms})
