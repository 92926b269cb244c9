#pragma once

// TC_ENVIRONMENT(ROW) lists every environment variable as ROW(name, type, default, doc[, min,
// max]). Only variables of type int may have min and max. A test compares
// docs/reference/environment.md with this list.
#define TC_ENVIRONMENT(ROW)                                                                        \
  ROW("TORCHCOMM_ABORT_ON_ERROR", "bool", "true", "Default of abort_process_on_timeout_or_error.") \
  ROW("TORCHCOMM_ABORT_GRACE_SECONDS", "seconds", "10",                                            \
      "Time that a failed asynchronous operation may stay unobserved before the process is "       \
      "terminated.")                                                                               \
  ROW("TORCHCOMM_TIMEOUT_SECONDS", "seconds", "600",                                               \
      "Default timeout of an operation, and of the start-up if no other timeout is set.")          \
  ROW("TORCHCOMM_STORE_TIMEOUT_SECONDS", "seconds", "",                                            \
      "Timeout for reaching the rendezvous store; the communicator's timeout if unset.")           \
  ROW("TORCHCOMM_INIT_TIMEOUT_SECONDS", "seconds", "",                                             \
      "Timeout for all ranks to arrive and connect; the communicator's timeout if unset.")         \
  ROW("TORCHCOMM_TEARDOWN_TIMEOUT_SECONDS", "seconds", "",                                         \
      "Timeout of finalize() if a vendor library waits for the other ranks there; the "            \
      "communicator's timeout if unset.")                                                          \
  ROW("TORCHCOMM_RANK", "int", "",                                                                 \
      "Rank of this process; read before the variables of any launcher.")                          \
  ROW("TORCHCOMM_SIZE", "int", "", "Number of ranks; read before the variables of any launcher.")  \
  ROW("TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD", "text", "auto",                                 \
      "Which launcher's variables give rank and size: auto, mpi, pals, torchrun, slurm; any "      \
      "other text: only TORCHCOMM_RANK and TORCHCOMM_SIZE.")                                       \
  ROW("TORCHCOMM_GLOO_HOSTNAME", "text", "", "Address that gloo binds to; the hint wins.")         \
  ROW("TORCHCOMM_GLOO_INTERFACE", "text", "",                                                      \
      "Network interface that gloo binds to; the hint wins.")                                      \
  ROW("TORCHCOMM_CTRAN_TUNING_FILE", "path", "",                                                   \
      "Results of `torchcomms tune` on this machine, for the choice of algorithms of ctran and "   \
      "of kernels; a file in ~/.cache/torchcomms if unset.")                                       \
  ROW("TORCHCOMM_CTRAN_KERNEL_ALGORITHM", "text", "auto",                                          \
      "How kernels run the collectives of backend ctran on GPUs if no hint says so: auto or a "    \
      "kernel algorithm.")                                                                         \
  ROW("TORCHCOMM_CTRAN_HOST_ID", "text", "",                                                       \
      "Name of this process's host, for backend ctran: ranks of one machine with different names " \
      "are treated as on different hosts; the hint wins.")                                         \
  ROW("TORCHCOMM_CTRAN_MOVE_THREADS", "bool", "true",                                              \
      "false: a waiting rank of backend ctran stays on its core, even if other ranks wait there "  \
      "and another core has fewer.")                                                               \
  ROW("TORCHCOMM_SHARE_CPU_TENSORS", "bool", "false",                                              \
      "Calls share_cpu_tensors() when the package is imported: large CPU tensors lie in memory "   \
      "that ranks of backend ctran on the same host map.")                                         \
  ROW("TORCHCOMM_<BACKEND>_LIBRARY", "path", "",                                                   \
      "Shared library that the backend nccl, ncclx, rccl, rcclx or xccl (upper case) uses; if "    \
      "unset, the one that torch has loaded, else the one that the loader finds.")                 \
  ROW("TORCHCOMM_<BACKEND>_BOOTSTRAP_UNIQUEID_EXCHANGE_METHOD", "text", "auto",                    \
      "How ranks of the backend nccl, ncclx, rccl, rcclx or xccl (upper case) share the id of "    \
      "their communicator: auto or tcpstore, which are the same.")                                 \
  ROW("CCL_PLUGIN", "text", "",                                                                    \
      "Variable of oneCCL: with ONECCL_LEGACY_CPU the backend xccl works on CPU tensors.")         \
  ROW("CCL_WORKER_OFFLOAD", "bool", "true",                                                        \
      "Variable of oneCCL: the backend xccl refuses 0 on CPU tensors.")                            \
  ROW("TORCHCOMM_KERNELS_LIBRARY", "path", "",                                                     \
      "Shared library of GPU kernels; if unset, the one in the folder of the package's other "     \
      "libraries.")                                                                                \
  ROW("TORCHCOMM_KERNELS_WORKSPACE", "text", "auto",                                               \
      "Whether GPU kernels allocate their workspace at once (whole) or in parts when a "           \
      "collective needs them (growing); auto: whole for a process's first communicator on a GPU; " \
      "the hint wins.")                                                                            \
  ROW("TORCHCOMM_NCCLX_ALGORITHM", "text", "auto",                                                 \
      "What runs the collectives of backend ncclx if no hint says so: auto, nccl, kernels or a "   \
      "kernel algorithm.")                                                                         \
  ROW("TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING", "bool", "true",                                  \
      "false: operations of backends over vendor libraries that are captured in graphs have no "   \
      "timeouts in replays.")                                                                      \
  ROW("TORCHCOMM_SIDE_CHANNEL", "bool", "true",                                                    \
      "false: backends over vendor libraries have no side channel, the connections between ranks " \
      "that report failures; equal on all ranks.")                                                 \
  ROW("TORCHCOMM_SIDE_CHANNEL_INTERFACE", "text", "",                                              \
      "Network interface or address of the side channel; the hint wins.")                          \
  ROW("TORCHCOMM_CHECK_CALLS", "bool", "false",                                                    \
      "ctran and backends over vendor libraries compare each collective on all ranks before it "   \
      "begins, which blocks the host on the latter; equal on all ranks.")                          \
  ROW("TORCHCOMM_LOG_LEVEL", "text", "warning", "error, warning, info or debug.")                  \
  ROW("TORCHCOMM_FR_BUFFER_SIZE", "int", "2000",                                                   \
      "Entries of the flight recorder that all recorder hooks of the process share; 0 records "    \
      "nothing; read once.",                                                                       \
      0)                                                                                           \
  ROW("TORCHCOMM_FR_DUMP_TEMP_FILE", "path", "",                                                   \
      "Path of flight recorder dumps without the rank, which is appended; if unset, "              \
      "torch/comm_lib_trace_rank_ in XDG_CACHE_HOME, else in ~/.cache, else in the temporary "     \
      "folder.")                                                                                   \
  ROW("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "bool", "false",                                      \
      "Read TORCHCOMM_FR_DUMP_TEMP_FILE at each dump, and take it as the whole file name.")        \
  ROW("TORCHCOMM_HEALTH_CHECK_WAIT_MS", "int", "15000",                                            \
      "How long the library waits before it terminates a process with a registered flight "        \
      "recorder, so that the record can be fetched.",                                              \
      0)                                                                                           \
  ROW("TORCHCOMM_EVENTS_CAPACITY", "int", "8192",                                                  \
      "Records kept in the event ring of the process, rounded up to a power of two; read once.",   \
      2, 1 << 22)                                                                                  \
  ROW("TORCHCOMM_RECORDER_DIR", "path", "",                                                        \
      "Folder of event ring files, for `torchcomms trace`; off: memory only; if unset, "           \
      "torchcomms-<uid> in /dev/shm, else in the temporary folder.")                               \
  ROW("TORCHCOMM_EVENTS_PRINT", "bool", "false",                                                   \
      "Print the event ring on standard error when the Python interpreter exits.")                 \
  ROW("TORCHCOMMS_BACKEND_LIB_PATH_<NAME>", "path", "",                                            \
      "Shared library that holds the backend <NAME> (upper case).")                                \
  ROW("MASTER_ADDR", "text", "", "Address of the rendezvous store if none is passed.")             \
  ROW("MASTER_PORT", "int", "", "Port of the rendezvous store if none is passed.")                 \
  ROW("TORCHELASTIC_USE_AGENT_STORE", "bool", "false",                                             \
      "Set by torchrun: the launcher serves the rendezvous store, not rank 0.")                    \
  ROW("TORCHELASTIC_RESTART_COUNT", "int", "0",                                                    \
      "Set by torchrun: how often the job was restarted; each start has its own store keys.")      \
  ROW("TORCHCOMMS_SERIALIZATION", "text", "",                                                      \
      "pickle: object collectives send and read pickles, which can run code.")                     \
  ROW("TORCHCOMMS_PATCH_FOR_COMPILE", "bool", "false",                                             \
      "1: the import registers the operators that torch.compile traces.")                          \
  ROW("TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT", "bool", "false",                    \
      "1: these operators are registered with every version of torch.")                            \
  ROW("TORCH_DISTRIBUTED_USE_TORCHCOMMS", "bool", "false",                                         \
      "PyTorch's own switch: route torch.distributed through this package.")
