# cmake [-DHIP=<version>] -P cmake/print_parts.cmake: prints what depends on the switches in the
# environment of a package's entry_points.txt.
cmake_minimum_required(VERSION 3.22)
include("${CMAKE_CURRENT_LIST_DIR}/Backends.cmake")
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH source_dir)
tc_resolve_parts("${source_dir}" "${HIP}")
foreach(line IN LISTS TC_ENTRY_POINTS)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${line}")
endforeach()
