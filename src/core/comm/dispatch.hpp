#pragma once

#include <torchcomms/backend.hpp>

// The visitor that calls the backend method of an operation. Each operation has one line, and only
// this file maps the members of an operation to the parameters of the backend.
namespace torch::comms {

inline WorkPtr dispatch(TorchCommBackend& b, const Send& o) {
  return b.send(o.tensor, o.peer, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const Recv& o) {
  return b.recv(o.tensor, o.peer, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const Broadcast& o) {
  return b.broadcast(o.tensor, o.root, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const AllReduce& o) {
  return b.all_reduce(o.tensor, o.op, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const Reduce& o) {
  return b.reduce(o.tensor, o.root, o.op, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const AllGather& o) {
  return b.all_gather(o.output, o.input, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const AllGatherV& o) {
  return b.all_gather_v(o.output, o.input, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const AllGatherSingle& o) {
  return b.all_gather_single(o.output, o.input, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const ReduceScatter& o) {
  return b.reduce_scatter(o.output, o.input, o.op, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const ReduceScatterV& o) {
  return b.reduce_scatter_v(o.output, o.input, o.op, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const ReduceScatterSingle& o) {
  return b.reduce_scatter_single(o.output, o.input, o.op, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const AllToAllSingle& o) {
  return b.all_to_all_single(o.output, o.input, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const AllToAllVSingle& o) {
  return b.all_to_all_v_single(o.output, o.input, o.output_split_sizes, o.input_split_sizes,
                               o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const AllToAll& o) {
  return b.all_to_all(o.output, o.input, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const Barrier& o) {
  return b.barrier(o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const Scatter& o) {
  return b.scatter(o.output, o.input, o.root, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const Gather& o) {
  return b.gather(o.output, o.input, o.root, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const GatherSingle& o) {
  return b.gather_single(o.output, o.input, o.root, o.async_op, o.options);
}
inline WorkPtr dispatch(TorchCommBackend& b, const BatchOpIssue& o) {
  return b.batch_op_issue(o.ops, o.async_op, o.options);
}

}  // namespace torch::comms
