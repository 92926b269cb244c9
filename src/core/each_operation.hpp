#pragma once

// X(Op) for every operation of <torchcomms/operation.hpp>: to instantiate what is templated on
// them.
#define TC_FOR_EACH_OPERATION(X) \
  X(Send)                        \
  X(Recv)                        \
  X(Broadcast)                   \
  X(AllReduce)                   \
  X(Reduce)                      \
  X(AllGather)                   \
  X(AllGatherV)                  \
  X(AllGatherSingle)             \
  X(ReduceScatter)               \
  X(ReduceScatterV)              \
  X(ReduceScatterSingle)         \
  X(AllToAllSingle)              \
  X(AllToAllVSingle)             \
  X(AllToAll)                    \
  X(Barrier)                     \
  X(Scatter)                     \
  X(Gather)                      \
  X(GatherSingle)                \
  X(BatchOpIssue)                \
  X(Split)                       \
  X(NewWindow)
