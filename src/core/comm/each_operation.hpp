#pragma once

// X(Op) for every operation of <torchcomms/operation.hpp> that a backend carries out and that gives
// a work: to instantiate what is templated on them.
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

// The same with those that make something else.
#define TC_FOR_EACH_OPERATION(X)       \
  TC_FOR_EACH_OPERATION_OF_BACKENDS(X) \
  X(Split)                             \
  X(NewWindow)
