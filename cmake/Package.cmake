# The Python package: extension modules, generated files, and what is installed where.
# Everything goes into <prefix>/torchcomms, and the command line beside it into <prefix>/torchcomms_cli
# (component torchcomms); component dev_info adds the dist-info folder that a development stage needs to
# have entry points.

# Builds what is installed, and no tests.
add_custom_target(package)
add_dependencies(package torchcomms)

# A module is found by the interpreter's own suffix and resolves libtorchcomms.so beside itself.
function(tc_python_module name)
  Python_add_library(${name} MODULE WITH_SOABI)
  add_dependencies(package ${name})
  target_link_libraries(${name} PRIVATE tc_options torchcomms)
  tc_link_rooms(${name} ${ARGN})
  add_custom_command(TARGET ${name} POST_BUILD VERBATIM
    COMMAND "${CMAKE_COMMAND}" "-DNM=${CMAKE_NM}" "-DMODULE=$<TARGET_FILE:${name}>"
      "-DLIBRARY=$<TARGET_FILE:torchcomms>" -P "${PROJECT_SOURCE_DIR}/cmake/check_symbols.cmake")
  install(TARGETS ${name} LIBRARY DESTINATION torchcomms COMPONENT torchcomms)
endfunction()

tc_room(bindings FOLDERS arguments classes python_backend
  DEPENDS core hooks interop backends/fake sim ctran/selection ctran/kernels ctran/reduction
  schedule tracing base TORCH PYTHON
  PRECOMPILE <torch/csrc/utils/pybind.h> <torch/csrc/autograd/python_variable.h>
    <torch/csrc/distributed/c10d/Store.hpp> <pybind11/chrono.h> <pybind11/stl.h>)
if(TARGET tc_bindings)
  tc_python_module(_comms bindings backends/fake sim ctran/selection ctran/kernels ctran/reduction schedule)
endif()
tc_room(bindings/vendor DEPENDS vendor gpu base PYTHON)
if(TARGET tc_bindings_vendor)
  tc_python_module(_vendor bindings/vendor vendor gpu)
endif()
foreach(part IN LISTS TC_BUILT)
  separate_arguments(part)
  list(GET part 0 room)
  list(GET part 1 module)
  tc_room_id(id ${room})
  set(class "${TC_CLASS_${module}}")
  set(header "${TC_HEADER_${module}}")
  set(methods "${TC_METHODS_${module}}")
  set(functions "${TC_FUNCTIONS_${module}}")
  set(registrations "")
  foreach(name IN LISTS TC_REGISTERS_${module})
    string(MAKE_C_IDENTIFIER "registration_${name}" variable)
    string(APPEND registrations "const torch::comms::VendorRegistration<torch::comms::${class}> "
      "${variable}(\"${name}\");\n")
  endforeach()
  set(source "${PROJECT_BINARY_DIR}/generated/${module}.cpp")
  configure_file(cmake/backend_module.cpp.in "${source}" @ONLY)
  tc_room_closure(rooms ${room})
  list(REMOVE_ITEM rooms ${TC_LIBRARY_ROOMS})
  tc_python_module(${module} ${rooms})
  target_sources(${module} PRIVATE "${source}")
  target_link_libraries(${module} PRIVATE tc_torch::torch_python)
  target_precompile_headers(${module} REUSE_FROM tc_bindings)
  target_compile_options(${module} PRIVATE -O1) # runs once
endforeach()

# What this build is, for `torchcomms._build_info`; looked at in every build because the commit changes
# without any file of ours changing.
set(build_info "${PROJECT_BINARY_DIR}/generated/_build_info.py")
add_custom_target(build_info ALL
  COMMAND "${CMAKE_COMMAND}"
    "-DTEMPLATE=${PROJECT_SOURCE_DIR}/python/torchcomms/_build_info.py.in" "-DOUTPUT=${build_info}"
    "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}" "-DVERSION=${PROJECT_VERSION}"
    "-DTORCH_VERSION=${TC_TORCH_PUBLIC}" "-DTORCH_MINOR=${TC_TORCH_MINOR}"
    "-DCXX11_ABI=${TC_TORCH_CXX11_ABI}" "-DBACKENDS=${TC_BACKENDS}" "-DBUILD_TYPE=${CMAKE_BUILD_TYPE}"
    -P "${PROJECT_SOURCE_DIR}/cmake/build_info.cmake"
  BYPRODUCTS "${build_info}"
  COMMENT "" VERBATIM)
add_dependencies(package build_info)

install(TARGETS torchcomms LIBRARY DESTINATION torchcomms COMPONENT torchcomms)
install(FILES "${build_info}" DESTINATION torchcomms COMPONENT torchcomms)
install(DIRECTORY python/torchcomms/ DESTINATION torchcomms COMPONENT torchcomms
  FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed"
  PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY python/torchcomms_cli DESTINATION . COMPONENT torchcomms
  FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY include/ DESTINATION torchcomms/include COMPONENT torchcomms
  FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh" PATTERN "*.h")

# find_package(torchcomms) of others, from where torchcomms.cmake_prefix_path() says.
include(CMakePackageConfigHelpers)
string(REGEX MATCH "^[0-9]+(\\.[0-9]+)*" numeric_version "${PROJECT_VERSION}")
set(config "${PROJECT_BINARY_DIR}/generated/torchcommsConfig")
configure_file(cmake/torchcommsConfig.cmake.in "${config}.cmake" @ONLY)
write_basic_package_version_file("${config}Version.cmake" VERSION "${numeric_version}"
  COMPATIBILITY SameMinorVersion)
install(FILES "${config}.cmake" "${config}Version.cmake"
  DESTINATION torchcomms/share/cmake/torchcomms COMPONENT torchcomms)

list(JOIN TC_ENTRY_POINTS "\n" entries)
set(dist_info "${PROJECT_BINARY_DIR}/generated/torchcomms-${PROJECT_VERSION}.dist-info")
file(WRITE "${dist_info}/entry_points.txt"
  "[console_scripts]\ntorchcomms = torchcomms_cli:main\n\n${entries}\n")
file(WRITE "${dist_info}/METADATA"
  "Metadata-Version: 2.1\nName: torchcomms\nVersion: ${PROJECT_VERSION}\n"
  "Requires-Dist: torch==${TC_TORCH_MINOR}.*\n")
install(DIRECTORY "${dist_info}" DESTINATION . COMPONENT dev_info EXCLUDE_FROM_ALL)
