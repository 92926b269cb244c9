#pragma once

// TC_ENVIRONMENT(ROW) lists every environment variable as ROW(name, type, default, doc[, min,
// max]). Only variables of type int may have min and max. A test compares
// docs/reference/environment.md with this list.
#define TC_ENVIRONMENT(ROW)                                                                        \
  ROW("TORCHCOMM_ABORT_ON_ERROR", "bool", "true", "Default of abort_process_on_timeout_or_error.") \
  ROW("TORCHCOMM_ABORT_GRACE_SECONDS", "seconds", "10",                                            \
      "How long a failed asynchronous operation may go unnoticed before the process is ended.")    \
  ROW("TORCHCOMM_TIMEOUT_SECONDS", "seconds", "600",                                               \
      "Default limit of an operation, and of the start-up where no other limit is set.")           \
  ROW("TORCHCOMM_STORE_TIMEOUT_SECONDS", "seconds", "",                                            \
      "Limit for reaching the rendezvous store; the communicator's timeout where unset.")          \
  ROW("TORCHCOMM_INIT_TIMEOUT_SECONDS", "seconds", "",                                             \
      "Limit for all ranks to arrive and connect; the communicator's timeout where unset.")        \
  ROW("TORCHCOMM_TEARDOWN_TIMEOUT_SECONDS", "seconds", "",                                         \
      "Limit of finalize() where a vendor's library waits for the other ranks there; the "         \
      "communicator's timeout where unset.")                                                       \
  ROW("TORCHCOMM_RANK", "int", "", "Rank of this process; looked at before any launcher's.")       \
  ROW("TORCHCOMM_SIZE", "int", "", "Number of ranks; looked at before any launcher's.")            \
  ROW("TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD", "text", "auto",                                 \
      "Which launcher's variables give rank and size: auto, mpi, pals, torchrun, slurm; any "      \
      "other text: TORCHCOMM_RANK and TORCHCOMM_SIZE alone.")                                      \
  ROW("TORCHCOMM_GLOO_HOSTNAME", "text", "", "Address that gloo binds to; the hint wins.")         \
  ROW("TORCHCOMM_GLOO_INTERFACE", "text", "",                                                      \
      "Network interface that gloo binds to; the hint wins.")                                      \
  ROW("TORCHCOMM_CTRAN_TUNING_FILE", "path", "",                                                   \
      "What `torchcomms tune` measured of this machine, for the choice of algorithms of ctran "    \
      "and "                                                                                       \
      "of kernels; one in ~/.cache/torchcomms where unset.")                                       \
  ROW("TORCHCOMM_CTRAN_KERNEL_ALGORITHM", "text", "auto",                                          \
      "How kernels run the collectives of backend ctran on GPUs where no hint says: auto or an "   \
      "algorithm of theirs.")                                                                      \
  ROW("TORCHCOMM_CTRAN_HOST_ID", "text", "",                                                       \
      "What this process calls its host, for backend ctran: ranks of one machine that say "        \
      "different names are treated as on different hosts; the hint wins.")                         \
  ROW("TORCHCOMM_CTRAN_MOVE_THREADS", "bool", "true",                                              \
      "false: a rank of backend ctran that waits stays on the core that the system has put it "    \
      "on, "                                                                                       \
      "also where other ranks wait there, and another core has fewer.")                            \
  ROW("TORCHCOMM_SHARE_CPU_TENSORS", "bool", "false",                                              \
      "As share_cpu_tensors() when the package is imported: large CPU tensors lie in memory that " \
      "ranks of backend ctran on the same host map.")                                              \
  ROW("TORCHCOMM_<BACKEND>_LIBRARY", "path", "",                                                   \
      "Shared library that the backend nccl, ncclx, rccl, rcclx or xccl (upper case) uses; the "   \
      "one that torch has loaded, else the one the loader finds, where unset.")                    \
  ROW("CCL_PLUGIN", "text", "",                                                                    \
      "oneCCL's own: ONECCL_LEGACY_CPU has the backend xccl work on CPU tensors.")                 \
  ROW("CCL_WORKER_OFFLOAD", "bool", "true",                                                        \
      "oneCCL's own: 0 is refused by the backend xccl on CPU tensors.")                            \
  ROW("TORCHCOMM_KERNELS_LIBRARY", "path", "",                                                     \
      "Shared library of GPU kernels; the one beside the package's other libraries, if there is "  \
      "one, where unset.")                                                                         \
  ROW("TORCHCOMM_KERNELS_WORKSPACE", "text", "auto",                                               \
      "Whether GPU kernels have all of their workspace at once (whole) or a part of it when a "    \
      "collective needs that (growing); auto: whole for a process's first communicator on a GPU; " \
      "the hint wins.")                                                                            \
  ROW("TORCHCOMM_NCCLX_ALGORITHM", "text", "auto",                                                 \
      "Who runs the collectives of backend ncclx where no hint says: auto, nccl, kernels or an "   \
      "algorithm of the kernels.")                                                                 \
  ROW("TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING", "bool", "true",                                  \
      "false: operations that backends over vendors' libraries have in graphs get no limits in "   \
      "replays.")                                                                                  \
  ROW("TORCHCOMM_SIDE_CHANNEL", "bool", "true",                                                    \
      "false: backends over vendors' libraries make no connections between ranks beside the "      \
      "library's, by which they learn of failures; equal on all ranks.")                           \
  ROW("TORCHCOMM_SIDE_CHANNEL_INTERFACE", "text", "",                                              \
      "Network interface or address for these connections; the hint wins.")                        \
  ROW("TORCHCOMM_CHECK_CALLS", "bool", "false",                                                    \
      "ctran and backends over vendors' libraries compare each collective on all ranks before it " \
      "begins, which blocks the host on the latter; equal on all ranks.")                          \
  ROW("TORCHCOMM_LOG_LEVEL", "text", "warning", "error, warning, info or debug.")                  \
  ROW("TORCHCOMM_FR_BUFFER_SIZE", "int", "2000",                                                   \
      "Entries of the flight recorder that all recorder hooks of the process share; 0 records "    \
      "nothing; read once.",                                                                       \
      0)                                                                                           \
  ROW("TORCHCOMM_FR_DUMP_TEMP_FILE", "path", "",                                                   \
      "Files of flight recorder dumps, without the rank that follows; torch/comm_lib_trace_rank_ " \
      "in XDG_CACHE_HOME, else ~/.cache, else the temporary folder, where unset.")                 \
  ROW("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "bool", "false",                                      \
      "Read TORCHCOMM_FR_DUMP_TEMP_FILE at each dump, and take it as the whole file name.")        \
  ROW("TORCHCOMM_HEALTH_CHECK_WAIT_MS", "int", "15000",                                            \
      "How long a process that the library ends waits before, where a flight recorder is "         \
      "registered, so that its record can be fetched.",                                            \
      0)                                                                                           \
  ROW("TORCHCOMM_EVENTS_CAPACITY", "int", "8192",                                                  \
      "Records kept in the event ring of the process, rounded up to a power of two; read once.",   \
      2, 1 << 22)                                                                                  \
  ROW("TORCHCOMM_RECORDER_DIR", "path", "",                                                        \
      "Folder of the files that event rings lie in, for `torchcomms trace`; off: in memory "       \
      "alone; "                                                                                    \
      "torchcomms-<uid> in /dev/shm, else in the temporary folder, where unset.")                  \
  ROW("TORCHCOMM_EVENTS_PRINT", "bool", "false",                                                   \
      "Print the event ring on standard error when the Python interpreter exits.")                 \
  ROW("TORCHCOMMS_BACKEND_LIB_PATH_<NAME>", "path", "",                                            \
      "Shared library that holds the backend <NAME> (upper case).")                                \
  ROW("MASTER_ADDR", "text", "", "Address of the rendezvous store where none is passed.")          \
  ROW("MASTER_PORT", "int", "", "Port of the rendezvous store where none is passed.")              \
  ROW("TORCHELASTIC_USE_AGENT_STORE", "bool", "false",                                             \
      "Set by torchrun: the launcher serves the rendezvous store, not rank 0.")                    \
  ROW("TORCHELASTIC_RESTART_COUNT", "int", "0",                                                    \
      "Set by torchrun: how often the job was restarted; each start has its own names.")           \
  ROW("TORCHCOMMS_SERIALIZATION", "text", "",                                                      \
      "pickle: object collectives send and read pickles, which can run code.")                     \
  ROW("TORCHCOMMS_PATCH_FOR_COMPILE", "bool", "false",                                             \
      "1: the operators that torch.compile traces are registered by the import.")                  \
  ROW("TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT", "bool", "false",                    \
      "1: they are registered whatever torch's version is.")                                       \
  ROW("TORCH_DISTRIBUTED_USE_TORCHCOMMS", "bool", "false",                                         \
      "PyTorch's own switch: route torch.distributed through this package.")
