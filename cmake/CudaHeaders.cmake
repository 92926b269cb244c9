# Where CUDA's headers are: in a toolkit, or in packages of pip that each have a part of them.
#
# tc_find_cuda_headers(<out> [FIRST <folder>...]): the include folders that together have cuda_runtime.h and what it
# includes, from one place if there is one that has all; empty where something is missing. FIRST is asked before
# torch's packages, Triton's and /usr/local/cuda.
# tc_nvcc_folders(<out> <nvcc>): the include folders that this nvcc itself uses, and their parents.

function(tc_nvcc_folders out nvcc)
  # Asked, not guessed: nvcc may be a link or a script far from its toolkit.
  execute_process(COMMAND "${nvcc}" --dryrun -x cu /dev/null OUTPUT_QUIET ERROR_VARIABLE said)
  string(REGEX MATCH "INCLUDES=[^\n]*" line "${said}")
  string(REGEX MATCHALL "-I[^\" ]+" found "${line}")
  set(folders "")
  foreach(folder IN LISTS found)
    string(SUBSTRING "${folder}" 2 -1 folder)
    if(IS_DIRECTORY "${folder}")
      file(REAL_PATH "${folder}" folder)
      cmake_path(GET folder PARENT_PATH root)
      list(APPEND folders "${folder}" "${root}")
    endif()
  endforeach()
  set(${out} "${folders}" PARENT_SCOPE)
endfunction()

function(tc_find_cuda_headers out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FIRST")
  cmake_path(GET TC_TORCH_DIR PARENT_PATH site)
  file(GLOB of_torch "${site}/nvidia/cu1*/include" "${site}/nvidia/cuda_runtime/include"
    "${site}/nvidia/cuda_nvcc/include" "${site}/nvidia/cuda_crt/include" "${site}/triton/backends/nvidia/include")
  file(GLOB of_toolkit /usr/local/cuda/include /usr/local/cuda/targets/*/include)
  set(runtime "")
  set(inner "")
  foreach(folder IN LISTS arg_FIRST of_torch of_toolkit)
    set(has_runtime OFF)
    if(EXISTS "${folder}/cuda_runtime.h")
      set(has_runtime ON)
      list(APPEND runtime "${folder}")
    endif()
    if(EXISTS "${folder}/crt/host_config.h")
      list(APPEND inner "${folder}")
      if(has_runtime)
        set(${out} "${folder}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
  if(runtime AND inner)
    list(GET runtime 0 first)
    list(GET inner 0 second)
    set(${out} "${first};${second}" PARENT_SCOPE)
  else()
    set(${out} "" PARENT_SCOPE)
  endif()
endfunction()
