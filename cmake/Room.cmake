# tc_room(<name> [FOLDERS <subfolder>...] [DEPENDS <room>...] [TORCH] [PYTHON] [DEFINITIONS <d>...]
#         [INCLUDES <dir>...] [PRECOMPILE <header>... | PRECOMPILED <room>])
#
# A room is the folder src/<name>. It becomes
#   tc_<name>      its objects (src/<name>/*.cpp and those of FOLDERS), compiled with what it may see, no more
#   tc_<name>_api  its headers, for the rooms that DEPEND on it
# A room sees its own headers and those of the rooms it depends on, as "<room>/<header>": each room has an
# include root of its own that holds one link, so a forbidden include does not compile. The public headers
# are visible to all; torch's only with TORCH, Python's and pybind11's only with PYTHON.
# PRECOMPILE names headers of others, torch's above all, that most files of the room include: they take
# far longer to compile than our own code. Every file still includes what it uses. PRECOMPILED takes those of
# another room, which has the same compiler options; rooms that see neither torch nor Python take those of base.
# A file that sees torch or pybind11 compiles for 2 to 7 seconds before its first own line: the compiler makes
# their templates anew in each. Rooms with TORCH therefore compile TORCHCOMMS_JOINED_FILES files at a time.
# Names in their unnamed namespaces are unique in the room.
# A folder that is not there, or has no sources yet, is named in the output and left out.

# Global property TC_ROOMS: the rooms that have objects.

set(TORCHCOMMS_JOINED_FILES 4 CACHE STRING "files of a room with torch that are compiled as one; 1: each alone")

function(tc_join_files target)
  if(TORCHCOMMS_JOINED_FILES GREATER 1)
    set_target_properties(${target} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TORCHCOMMS_JOINED_FILES})
  endif()
endfunction()

function(tc_room_id out name)
  string(REPLACE "/" "_" id "${name}")
  set(${out} "tc_${id}" PARENT_SCOPE)
endfunction()

# One folder with the single link <name> -> src/<name>.
function(tc_include_root out name)
  set(root "${PROJECT_BINARY_DIR}/rooms/${name}")
  cmake_path(GET name PARENT_PATH above)
  file(MAKE_DIRECTORY "${root}/${above}")
  if(NOT EXISTS "${root}/${name}")
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src/${name}" "${root}/${name}" SYMBOLIC)
  endif()
  set(${out} "${root}" PARENT_SCOPE)
endfunction()

function(tc_room name)
  cmake_parse_arguments(PARSE_ARGV 1 room "TORCH;PYTHON" "PRECOMPILED" "FOLDERS;DEPENDS;DEFINITIONS;INCLUDES;PRECOMPILE")
  if(room_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tc_room(${name}): unknown arguments ${room_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT IS_DIRECTORY "${PROJECT_SOURCE_DIR}/src/${name}")
    message(STATUS "room ${name}: no folder src/${name}, left out")
    return()
  endif()
  tc_room_id(id "${name}")
  tc_include_root(root "${name}")

  add_library(${id}_api INTERFACE)
  target_include_directories(${id}_api INTERFACE "${root}" "${PROJECT_SOURCE_DIR}/include")
  # Paths in error texts read src/<room>/<file>, wherever the build folder is.
  target_compile_options(${id}_api INTERFACE "-fmacro-prefix-map=${root}/=src/")
  foreach(dependency IN LISTS room_DEPENDS)
    tc_room_id(other "${dependency}")
    if(TARGET ${other}_api)
      target_link_libraries(${id}_api INTERFACE ${other}_api)
    endif()
  endforeach()
  if(room_TORCH)
    target_link_libraries(${id}_api INTERFACE tc_torch::torch_cpu)
  endif()
  if(room_PYTHON)
    target_link_libraries(${id}_api INTERFACE tc_torch::torch_python Python::Module)
  endif()

  set(globs "${PROJECT_SOURCE_DIR}/src/${name}/*.cpp")
  foreach(folder IN LISTS room_FOLDERS)
    list(APPEND globs "${PROJECT_SOURCE_DIR}/src/${name}/${folder}/*.cpp")
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${globs})
  if(NOT sources)
    message(STATUS "room ${name}: no sources in src/${name}, headers only")
    return()
  endif()
  add_library(${id} OBJECT ${sources})
  target_link_libraries(${id} PRIVATE ${id}_api tc_options)
  target_compile_definitions(${id} PRIVATE ${room_DEFINITIONS})
  target_include_directories(${id} PRIVATE ${room_INCLUDES})
  target_precompile_headers(${id} PRIVATE ${room_PRECOMPILE})
  if(NOT room_PRECOMPILE AND NOT room_PRECOMPILED AND NOT room_TORCH AND NOT room_PYTHON)
    set(room_PRECOMPILED base)
  endif()
  if(room_PRECOMPILED)
    tc_room_id(owner "${room_PRECOMPILED}")
    target_precompile_headers(${id} REUSE_FROM ${owner})
  endif()
  if(room_TORCH)
    tc_join_files(${id})
  endif()
  set_target_properties(${id} PROPERTIES
    TC_ROOM_DEPENDS "${room_DEPENDS}" TC_ROOM_TORCH "${room_TORCH}")
  set_property(GLOBAL APPEND PROPERTY TC_ROOMS "${name}")
endfunction()

# Links the objects of the rooms into `target`, as far as they exist. Their libraries come along.
function(tc_link_rooms target)
  foreach(name IN LISTS ARGN)
    tc_room_id(id "${name}")
    if(TARGET ${id})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${id}>)
      target_link_libraries(${target} PRIVATE ${id}_api)
    endif()
  endforeach()
endfunction()

# The room and everything its arrows reach.
function(tc_room_closure out name)
  set(todo "${name}")
  set(seen "")
  while(todo)
    list(POP_FRONT todo next)
    if(next IN_LIST seen)
      continue()
    endif()
    list(APPEND seen "${next}")
    tc_room_id(id "${next}")
    if(TARGET ${id})
      get_target_property(more ${id} TC_ROOM_DEPENDS)
      if(more)
        list(APPEND todo ${more})
      endif()
    endif()
  endwhile()
  set(${out} "${seen}" PARENT_SCOPE)
endfunction()
