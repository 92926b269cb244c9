# What is built, and the one table behind it. Also run as a script (print_parts.cmake) by the Python side,
# so that a wheel's entry points come from here too.
#
# A switch is read from -D<switch>=..., else from the environment, else it has its default. Exactly 1 or ON
# means on; any other value means off.
#
# Default: ON, OFF, ROCM (on with a ROCm torch), NOT_ROCM (on with any other), or another switch's name.
# Room: the folder under src/ the part lives in; a part whose room has no sources yet is reported, not built.

#        switch                 default   room              module               entry points
set(TC_PART_TABLE
        "USE_GLOO               ON        backends/gloo     _comms_gloo          gloo"
        "USE_CTRAN              ON        backends/ctran    _comms_ctran         ctran"
        "USE_NCCL               NOT_ROCM  backends/nccl     _comms_nccl          nccl,nccl-lazy"
        "USE_NCCLX              NOT_ROCM  backends/ncclx    _comms_ncclx         ncclx"
        "USE_RCCL               ROCM      backends/nccl     _comms_rccl          rccl"
        "USE_RCCLX              OFF       backends/nccl     _comms_rcclx         rcclx"
        "USE_XCCL               OFF       backends/xccl     _comms_xccl          xccl"
        "USE_TRANSPORT          NOT_ROCM  rdma              _transport           -"
        "USE_TRANSPORT_CCA_HOOK USE_NCCLX rdma/cca_hook     _transport_cca_hook  -"
        "USE_TRITON             OFF       triton            _triton              -")

# The class that a backend's module shows to Python, and its header.
set(TC_CLASS__comms_ctran TorchCommCtran)
set(TC_HEADER__comms_ctran backends/ctran/ctran_backend.hpp)
set(TC_CLASS__comms_gloo TorchCommGloo)
set(TC_HEADER__comms_gloo backends/gloo/gloo_backend.hpp)
# One room holds the backends over vendors' libraries; each module registers its own, by the names given.
foreach(vendor NCCL RCCL RCCLX)
  string(TOLOWER "_comms_${vendor}" module)
  set(TC_CLASS_${module} "TorchComm${vendor}")
  set(TC_HEADER_${module} backends/nccl/api/vendor_backends.hpp)
endforeach()
set(TC_CLASS__comms_ncclx TorchCommNCCLX)
set(TC_HEADER__comms_ncclx backends/ncclx/ncclx_backend.hpp)
set(TC_CLASS__comms_xccl TorchCommXCCL)
set(TC_HEADER__comms_xccl backends/xccl/xccl_backend.hpp)
set(TC_HEADER__comms_rcclx backends/nccl/api/rcclx_docs.hpp)
set(TC_REGISTERS__comms_nccl nccl nccl-lazy)
set(TC_REGISTERS__comms_ncclx ncclx)
set(TC_REGISTERS__comms_rccl rccl)
set(TC_REGISTERS__comms_rcclx rcclx)
set(TC_REGISTERS__comms_xccl xccl)
set(TC_METHODS__comms_nccl
  ".def(\"get_nccl_comm_ptr\", &torch::comms::TorchCommNCCL::communicator_address, \"The library's communicator, as a number.\")")
set(TC_METHODS__comms_ncclx "
      .def(\"get_nccl_comm_ptr\", &torch::comms::TorchCommNCCLX::communicator_address, \"The library's communicator, as a number.\")
      .def(\"comm_dump\", &torch::comms::TorchCommNCCLX::comm_dump, \"What is known of the communicator, in words: commHash, rank, nRanks and more.\")
      .def(\"set_config\", &torch::comms::TorchCommNCCLX::set_config, py::arg(\"hints\"), \"Changes who runs which collective: allreduceAlgo and the like.\")
      .def(\"device_alltoallv_single\", &torch::comms::TorchCommNCCLX::device_alltoallv_single, py::arg(\"output\"), py::arg(\"input\"), py::arg(\"output_split_sizes\"), py::arg(\"input_split_sizes\"), py::arg(\"async_op\"), py::call_guard<py::gil_scoped_release>(), \"all_to_all_v_single whose sizes, in elements, are int64 on the device, and read there.\")
      .def(\"reduce_scatter_quantized\", &torch::comms::TorchCommNCCLX::reduce_scatter_quantized, py::arg(\"output\"), py::arg(\"input\"), py::arg(\"op\"), py::arg(\"seed\"), py::arg(\"async_op\"), py::call_guard<py::gil_scoped_release>(), \"reduce_scatter_single of float32 that travels as bfloat16, rounded by chance: SUM or AVG; seed is an int64 on the device.\")")
set(TC_METHODS__comms_rcclx "
      .def(\"sharded_relay_multi_group_all_reduce\", &torch::comms::TorchCommRCCLX::sharded_relay_multi_group_all_reduce, py::arg(\"tensors\"), py::arg(\"op\"), py::arg(\"all_active_ranks\"), py::arg(\"per_group_counts\"), py::arg(\"async_op\") = false, py::arg(\"output_tensors\") = py::none(), py::call_guard<py::gil_scoped_release>(), torch::comms::rcclx::kAllReduceDoc)
      .def(\"sharded_relay_multi_group_reduce_scatter\", &torch::comms::TorchCommRCCLX::sharded_relay_multi_group_reduce_scatter, py::arg(\"input_tensors\"), py::arg(\"output_tensors\"), py::arg(\"op\"), py::arg(\"all_active_ranks\"), py::arg(\"per_group_recv_counts\"), py::arg(\"async_op\") = false, py::call_guard<py::gil_scoped_release>(), torch::comms::rcclx::kReduceScatterDoc)
      .def(\"sharded_relay_multi_group_all_to_all\", &torch::comms::TorchCommRCCLX::sharded_relay_multi_group_all_to_all, py::arg(\"input_tensors\"), py::arg(\"output_tensors\"), py::arg(\"all_active_ranks\"), py::arg(\"per_group_segment_counts\"), py::arg(\"async_op\") = false, py::call_guard<py::gil_scoped_release>(), torch::comms::rcclx::kAllToAllDoc)
      .def(\"sharded_relay_multi_group_all_gather\", &torch::comms::TorchCommRCCLX::sharded_relay_multi_group_all_gather, py::arg(\"input_tensors\"), py::arg(\"output_tensors\"), py::arg(\"all_active_ranks\"), py::arg(\"per_group_send_counts\"), py::arg(\"async_op\") = false, py::call_guard<py::gil_scoped_release>(), torch::comms::rcclx::kAllGatherDoc)")
set(TC_FUNCTIONS__comms_ctran "module.def(\"share_cpu_tensors\", &torch::comms::TorchCommCtran::share_cpu_tensors, py::arg(\"wanted\"), \"See torchcomms.share_cpu_tensors.\");
  module.def(\"share_cpu_tensors_where_asked\", &torch::comms::TorchCommCtran::share_cpu_tensors_if_configured, \"Calls share_cpu_tensors() if TORCHCOMM_SHARE_CPU_TENSORS is true.\");")
set(TC_FUNCTIONS__comms_ncclx "module.def(\"comm_dump_all\", &torch::comms::TorchCommNCCLX::comm_dump_all, py::arg(\"hints\") = torch::comms::Hints{}, \"comm_dump() of all communicators of this process, by commHash, and GlobalInfo.\");
  for (const char* name : {\"TorchCommWindowNCCLXGin\", \"TorchCommWindowNCCLXPipes\"}) module.attr(name) = py::type::of<torch::comms::TorchCommWindow>();
  module.def(\"kernel_table\", &torch::comms::TorchCommNCCLX::kernel_table, \"(operation, ranks at most, bytes at most) of the collectives that kernels run.\");
  module.def(\"init_caching_allocator_hook\", &torch::comms::ncclx::init_caching_allocator_hook, py::call_guard<py::gil_scoped_release>(), \"From now on communicators of this backend tell the library of the memory that torch's caching allocator has of their device. May be repeated. Raises Unsupported without CUDA.\");")

# What torch.distributed does not know of itself: python/torchcomms/_c10d.py registers them there.
set(TC_C10D_BACKENDS ctran)

# Sets `out` to TRUE or FALSE, and `given` to whether the user said so.
function(tc_switch out given switch default hip)
  set(${given} TRUE PARENT_SCOPE)
  if(DEFINED CACHE{${switch}})
    set(value "${${switch}}")
  elseif(DEFINED ENV{${switch}})
    set(value "$ENV{${switch}}")
  else()
    set(${given} FALSE PARENT_SCOPE)
    set(value "${default}")
    if(default STREQUAL "ROCM")
      set(value OFF)
      if(hip)
        set(value ON)
      endif()
    elseif(default STREQUAL "NOT_ROCM")
      set(value ON)
      if(hip)
        set(value OFF)
      endif()
    elseif(default MATCHES "^USE_")
      set(value "${TC_WANT_${default}}")
    endif()
  endif()
  if(value STREQUAL "1" OR value STREQUAL "ON")
    set(${out} ON PARENT_SCOPE)
  else()
    set(${out} OFF PARENT_SCOPE)
  endif()
endfunction()

# Reads the table. Sets
#   TC_BUILT         rows to build, "<room> <module>"
#   TC_ENTRY_POINTS  the lines of a package's entry_points.txt, with the groups torchcomms.backends and
#                    torch.distributed.backends
#   TC_BACKENDS      names of the first group's
#   TC_SUMMARY       one line a switch: built, off, or not in this version
#   TC_WANTED_BUT_ABSENT  switches the user turned on whose part this version does not have
function(tc_resolve_parts source_dir hip)
  set(built "")
  set(entries "[torchcomms.backends]" "fake = torchcomms._comms")
  set(c10d_entries "[torch.distributed.backends]")
  set(names "fake")
  set(summary "")
  set(absent "")
  foreach(row IN LISTS TC_PART_TABLE)
    string(REGEX REPLACE " +" ";" row "${row}")
    list(GET row 0 switch)
    list(GET row 1 default)
    list(GET row 2 room)
    list(GET row 3 module)
    list(GET row 4 points)
    file(GLOB_RECURSE sources "${source_dir}/src/${room}/*.cpp")
    tc_switch(wanted given ${switch} ${default} "${hip}")
    set(TC_WANT_${switch} ${wanted})
    if(NOT wanted)
      list(APPEND summary "${switch}: off")
    elseif(NOT sources)
      list(APPEND summary "${switch}: not in this version")
      if(given)
        list(APPEND absent ${switch})
      endif()
    else()
      list(APPEND summary "${switch}: built (torchcomms.${module})")
      list(APPEND built "${room} ${module}")
      string(REPLACE "," ";" points "${points}")
      list(REMOVE_ITEM points "-")
      foreach(point IN LISTS points)
        list(APPEND entries "${point} = torchcomms.${module}")
        list(APPEND names "${point}")
        if(point IN_LIST TC_C10D_BACKENDS)
          list(APPEND c10d_entries "${point} = torchcomms._c10d:${point}")
        endif()
      endforeach()
    endif()
  endforeach()
  set(TC_BUILT "${built}" PARENT_SCOPE)
  set(TC_ENTRY_POINTS ${entries} "" ${c10d_entries} PARENT_SCOPE)
  set(TC_BACKENDS "${names}" PARENT_SCOPE)
  set(TC_SUMMARY "${summary}" PARENT_SCOPE)
  set(TC_WANTED_BUT_ABSENT "${absent}" PARENT_SCOPE)
endfunction()
