#include "core/staging/staged_call.hpp"

#include <iterator>
#include <utility>

#include "core/comm/dispatch.hpp"
#include "core/comm/operand_checks.hpp"

namespace torch::comms {
namespace {

// The position of a tensor among the host tensors.
struct HostTensorRef {
  size_t index;
  at::Tensor& operator()(Tensors& hosts) const { return hosts[index]; }
};
// The consecutive positions of a list.
struct HostTensorListRef {
  size_t begin, count;
  Tensors operator()(const Tensors& hosts) const {
    const auto first = std::next(hosts.begin(), static_cast<std::ptrdiff_t>(begin));
    return {first, std::next(first, static_cast<std::ptrdiff_t>(count))};
  }
};
// A reduction; its factor may be a tensor.
struct StagedReduction {
  ReduceOp op;
  bool has_tensor;
  HostTensorRef factor;
  ReduceOp operator()(Tensors& hosts) const {
    return has_tensor ? ReduceOp::make_nccl_premul_sum(factor(hosts)) : op;
  }
};

class StagedCallBuilder {
 public:
  template <class Op>
  explicit StagedCallBuilder(const Op& op) {
    call_.op = Op::kName;
    call_.async_op = op.async_op;
    call_.timeout = op.options.timeout;
  }

  HostTensorRef read(const at::Tensor& tensor) { return add(tensor, true, false); }
  HostTensorRef write(const at::Tensor& tensor) { return add(tensor, false, true); }
  HostTensorRef read_write(const at::Tensor& tensor) { return add(tensor, true, true); }
  HostTensorListRef read(const Tensors& tensors) { return add(tensors, true, false); }
  HostTensorListRef write(const Tensors& tensors) { return add(tensors, false, true); }
  HostTensorListRef no_tensors() const { return {call_.operands.size(), 0}; }
  StagedReduction reduction(const ReduceOp& op) {
    const auto* factor = op.factor();
    if (factor == nullptr || !std::holds_alternative<at::Tensor>(*factor) ||
        !std::get<at::Tensor>(*factor).defined())
      return {op, false, {0}};
    return {op, true, read(std::get<at::Tensor>(*factor))};
  }

  template <class Issue>
  StagedCall build(Issue issue) {
    call_.dispatch = std::move(issue);
    return std::move(call_);
  }

 private:
  HostTensorRef add(const at::Tensor& tensor, bool is_read, bool is_written) {
    require_plain_memory(tensor);
    const size_t size_bytes = tensor.nbytes();
    char* data = nullptr;
    if (size_bytes > 0) {
      // This avoids data_ptr(), because tensors that require a gradient are allowed, too.
      auto* base = static_cast<char*>(is_written ? tensor.storage().mutable_data()
                                                 : const_cast<void*>(tensor.storage().data()));
      data = base + static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
    }
    call_.operands.push_back({tensor.storage(),
                              data,
                              size_bytes,
                              {tensor.sizes().begin(), tensor.sizes().end()},
                              tensor.scalar_type(),
                              tensor.device(),
                              is_read,
                              is_written});
    return {call_.operands.size() - 1};
  }
  HostTensorListRef add(const Tensors& tensors, bool is_read, bool is_written) {
    const size_t begin = call_.operands.size();
    for (const auto& tensor : tensors) add(tensor, is_read, is_written);
    return {begin, tensors.size()};
  }

  StagedCall call_;
};

// The operations with an output, an input, and possibly a reduction.
template <class Op>
StagedCall stage_out_of_place(const Op& op) {
  StagedCallBuilder b(op);
  const auto output = b.write(op.output);
  const auto input = b.read(op.input);
  return b.build([=, options = op.options](TorchCommBackend& backend, Tensors& hosts, bool async) {
    return dispatch(backend, Op{output(hosts), input(hosts), async, options});
  });
}

template <class Op>
StagedCall stage_out_of_place_reduction(const Op& op) {
  StagedCallBuilder b(op);
  const auto output = b.write(op.output);
  const auto input = b.read(op.input);
  const auto reduction = b.reduction(op.op);
  return b.build([=, options = op.options](TorchCommBackend& backend, Tensors& hosts, bool async) {
    return dispatch(backend, Op{output(hosts), input(hosts), reduction(hosts), async, options});
  });
}

}  // namespace

StagedCall staged_call(const Send& op, int) {
  StagedCallBuilder b(op);
  const auto tensor = b.read(op.tensor);
  return b.build([=, peer = op.peer, options = op.options](TorchCommBackend& backend,
                                                           Tensors& hosts, bool async) {
    return dispatch(backend, Send{tensor(hosts), peer, async, options});
  });
}

StagedCall staged_call(const Recv& op, int) {
  StagedCallBuilder b(op);
  const auto tensor = b.write(op.tensor);
  return b.build([=, peer = op.peer, options = op.options](TorchCommBackend& backend,
                                                           Tensors& hosts, bool async) {
    return dispatch(backend, Recv{tensor(hosts), peer, async, options});
  });
}

StagedCall staged_call(const Broadcast& op, int rank) {
  StagedCallBuilder b(op);
  const auto tensor = rank == op.root ? b.read(op.tensor) : b.write(op.tensor);
  return b.build([=, root = op.root, options = op.options](TorchCommBackend& backend,
                                                           Tensors& hosts, bool async) {
    return dispatch(backend, Broadcast{tensor(hosts), root, async, options});
  });
}

StagedCall staged_call(const AllReduce& op, int) {
  StagedCallBuilder b(op);
  const auto tensor = b.read_write(op.tensor);
  const auto reduction = b.reduction(op.op);
  return b.build([=, options = op.options](TorchCommBackend& backend, Tensors& hosts, bool async) {
    return dispatch(backend, AllReduce{tensor(hosts), reduction(hosts), async, options});
  });
}

StagedCall staged_call(const Reduce& op, int rank) {
  StagedCallBuilder b(op);
  const auto tensor = rank == op.root ? b.read_write(op.tensor) : b.read(op.tensor);
  const auto reduction = b.reduction(op.op);
  return b.build([=, root = op.root, options = op.options](TorchCommBackend& backend,
                                                           Tensors& hosts, bool async) {
    return dispatch(backend, Reduce{tensor(hosts), root, reduction(hosts), async, options});
  });
}

StagedCall staged_call(const AllGather& op, int) { return stage_out_of_place(op); }
StagedCall staged_call(const AllGatherV& op, int) { return stage_out_of_place(op); }
StagedCall staged_call(const AllGatherSingle& op, int) { return stage_out_of_place(op); }
StagedCall staged_call(const ReduceScatter& op, int) { return stage_out_of_place_reduction(op); }
StagedCall staged_call(const ReduceScatterV& op, int) { return stage_out_of_place_reduction(op); }
StagedCall staged_call(const ReduceScatterSingle& op, int) {
  return stage_out_of_place_reduction(op);
}
StagedCall staged_call(const AllToAllSingle& op, int) { return stage_out_of_place(op); }
StagedCall staged_call(const AllToAll& op, int) { return stage_out_of_place(op); }

StagedCall staged_call(const AllToAllVSingle& op, int) {
  StagedCallBuilder b(op);
  // The splits may not cover all rows, so the output is read as well.
  const auto output = b.read_write(op.output);
  const auto input = b.read(op.input);
  return b.build([=, to = op.output_split_sizes, from = op.input_split_sizes, options = op.options](
                     TorchCommBackend& backend, Tensors& hosts, bool async) {
    return dispatch(backend,
                    AllToAllVSingle{output(hosts), input(hosts), to, from, async, options});
  });
}

StagedCall staged_call(const Barrier& op, int) {
  return StagedCallBuilder(op).build(
      [options = op.options](TorchCommBackend& backend, Tensors&, bool async) {
        return dispatch(backend, Barrier{async, options});
      });
}

StagedCall staged_call(const Scatter& op, int rank) {
  StagedCallBuilder b(op);
  const auto output = b.write(op.output);
  const auto input = rank == op.root ? b.read(op.input) : b.no_tensors();
  return b.build([=, root = op.root, options = op.options](TorchCommBackend& backend,
                                                           Tensors& hosts, bool async) {
    return dispatch(backend, Scatter{output(hosts), input(hosts), root, async, options});
  });
}

StagedCall staged_call(const Gather& op, int rank) {
  StagedCallBuilder b(op);
  const auto output = rank == op.root ? b.write(op.output) : b.no_tensors();
  const auto input = b.read(op.input);
  return b.build([=, root = op.root, options = op.options](TorchCommBackend& backend,
                                                           Tensors& hosts, bool async) {
    return dispatch(backend, Gather{output(hosts), input(hosts), root, async, options});
  });
}

StagedCall staged_call(const GatherSingle& op, int rank) {
  StagedCallBuilder b(op);
  const auto input = b.read(op.input);
  // On other ranks the output is not used and may be undefined.
  const auto output = rank == op.root ? b.write(op.output) : input;
  return b.build([=, root = op.root, options = op.options](TorchCommBackend& backend,
                                                           Tensors& hosts, bool async) {
    return dispatch(backend, GatherSingle{output(hosts), input(hosts), root, async, options});
  });
}

StagedCall staged_call(const BatchOpIssue& op, int) {
  struct StagedP2pOp {
    P2POpType type;
    HostTensorRef tensor;
    int peer, tag;
  };
  StagedCallBuilder b(op);
  std::vector<StagedP2pOp> entries;
  entries.reserve(op.ops.size());
  for (const auto& entry : op.ops)
    entries.push_back({entry.type,
                       entry.type == P2POpType::SEND ? b.read(entry.tensor) : b.write(entry.tensor),
                       entry.peer, entry.tag});
  return b.build([entries = std::move(entries), options = op.options](TorchCommBackend& backend,
                                                                      Tensors& hosts, bool async) {
    std::vector<P2POp> ops;
    for (const auto& [type, tensor, peer, tag] : entries)
      ops.push_back({type, tensor(hosts), peer, tag});
    return dispatch(backend, BatchOpIssue{ops, ops.size(), async, options});
  });
}

}  // namespace torch::comms
