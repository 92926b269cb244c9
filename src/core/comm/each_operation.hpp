#pragma once

// Expands to X(Op) for every operation of <torchcomms/operation.hpp> that a backend carries out and
// that returns a work. It instantiates templates over operations.
#define TC_FOR_EACH_OPERATION_OF_BACKENDS(X) \
  X(Send)                                    \
  X(Recv)                                    \
  X(Broadcast)                               \
  X(AllReduce)                               \
  X(Reduce)                                  \
  X(AllGather)                               \
  X(AllGatherV)                              \
  X(AllGatherSingle)                         \
  X(ReduceScatter)                           \
  X(ReduceScatterV)                          \
  X(ReduceScatterSingle)                     \
  X(AllToAllSingle)                          \
  X(AllToAllVSingle)                         \
  X(AllToAll)                                \
  X(Barrier)                                 \
  X(Scatter)                                 \
  X(Gather)                                  \
  X(GatherSingle)                            \
  X(BatchOpIssue)

// Expands to X(Op) also for the operations that return another object.
#define TC_FOR_EACH_OPERATION(X)       \
  TC_FOR_EACH_OPERATION_OF_BACKENDS(X) \
  X(Split)                             \
  X(NewWindow)
