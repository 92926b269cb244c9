#pragma once

// Docstrings of the operations: shapes, errors, cost. N is the number of ranks, B the bytes of one
// rank's tensor.
namespace torch::comms::bindings::docs {

inline constexpr const char* kSend =
    R"DOC(Sends `tensor` to rank `dst`; pairs in order with its recv.

Args:
    tensor: contiguous, any shape.
    dst: receiving rank.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    B bytes sent, one message.)DOC";
inline constexpr const char* kRecv = R"DOC(Receives into `tensor` what rank `src` sends.

Args:
    tensor: contiguous, any shape, as many elements as are sent.
    src: sending rank.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    B bytes received, one message.)DOC";
inline constexpr const char* kBroadcast = R"DOC(Gives every rank the content of `root`'s tensor.

Args:
    tensor: contiguous, any shape, as many elements on all ranks; in place.
    root: rank whose content counts.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    B bytes received per rank; about log2(N) steps on a tree.)DOC";
inline constexpr const char* kAllReduce =
    R"DOC(Combines all ranks' tensors element by element; every rank gets the result, in place.

Args:
    tensor: contiguous, any shape, as many elements on all ranks.
    op: ReduceOp. MIN and MAX need an order, bitwise ones integers or bool.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    2 (N - 1) / N * B bytes sent per rank on a ring.)DOC";
inline constexpr const char* kReduce =
    R"DOC(As all_reduce, but the result lands in `root`'s tensor alone.

Args:
    tensor: contiguous, any shape, as many elements on all ranks; unchanged on other ranks.
    root: rank that gets the result.
    op: ReduceOp. MIN and MAX need an order, bitwise ones integers or bool.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    about B bytes sent per rank.)DOC";
inline constexpr const char* kAllGather =
    R"DOC(Gives every rank every rank's tensor: slot i of `tensor_list` becomes rank i's `tensor`.

Args:
    tensor_list: N tensors, each with tensor.numel() elements, contiguous.
    tensor: contiguous, any shape.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    (N - 1) * B bytes received per rank.)DOC";
inline constexpr const char* kAllGatherV = R"DOC(As all_gather with a size of its own for each rank.

Args:
    tensor_list: N tensors; slot i has as many elements as rank i's `tensor`, contiguous.
    tensor: contiguous, any shape; tensor_list[rank] has as many elements.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    the sum of the other ranks' bytes received per rank.)DOC";
inline constexpr const char* kAllGatherSingle =
    R"DOC(Concatenates every rank's `input` into `output`, in rank order.

Args:
    output: N * input.numel() elements, contiguous.
    input: contiguous, any shape.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    (N - 1) * B bytes received per rank.)DOC";
inline constexpr const char* kReduceScatter =
    R"DOC(Combines slot r of every rank's list; rank r gets the result.

Args:
    output: contiguous, any shape.
    input_list: N tensors, each with output.numel() elements, contiguous.
    op: ReduceOp. MIN and MAX need an order, bitwise ones integers or bool.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    (N - 1) * B bytes sent per rank, B being the output's.)DOC";
inline constexpr const char* kReduceScatterV =
    R"DOC(As reduce_scatter with a size of its own for each rank.

Args:
    output: contiguous, any shape; as many elements as input_list[rank].
    input_list: N tensors; slot i has as many elements on all ranks.
    op: ReduceOp. MIN and MAX need an order, bitwise ones integers or bool.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    the sum of the other slots' bytes sent per rank.)DOC";
inline constexpr const char* kReduceScatterSingle =
    R"DOC(Combines all ranks' `input` and gives rank r its r-th part.

Args:
    output: contiguous, any shape.
    input: N * output.numel() elements, contiguous.
    op: ReduceOp. MIN and MAX need an order, bitwise ones integers or bool.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    (N - 1) * B bytes sent per rank, B being the output's.)DOC";
inline constexpr const char* kAllToAllSingle =
    R"DOC(Sends part i of `input` to rank i; part i of `output` comes from rank i.

Args:
    output: as many elements as input, contiguous.
    input: contiguous, any shape; the element count divides by N.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    (N - 1) / N * B bytes sent and received per rank.)DOC";
inline constexpr const char* kAllToAllVSingle =
    R"DOC(As all_to_all_single with row counts of its own for each pair of ranks.

Args:
    output: contiguous; rows as wide as the input's.
    input: contiguous, any shape.
    output_split_sizes: N counts of rows (dimension 0) got from each rank; the sum may be below the rows there are.
    input_split_sizes: N counts of rows sent to each rank, likewise.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    the bytes of the rows sent and received.)DOC";
inline constexpr const char* kAllToAll =
    R"DOC(Sends tensor i of the input list to rank i; tensor i of the output list comes from rank i.

Args:
    output_tensor_list: N contiguous tensors; tensor i has as many elements as rank i sends here.
    input_tensor_list: N contiguous tensors.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    the bytes of the other ranks' tensors sent and received.)DOC";
inline constexpr const char* kBarrier =
    R"DOC(Returns when every rank has called it (GPU: ordered on the stream, the host goes on).

Args:
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    about 2 log2(N) small messages.)DOC";
inline constexpr const char* kScatter = R"DOC(Gives rank i tensor i of `root`'s list.

Args:
    output_tensor: contiguous, any shape.
    input_tensor_list: on the root N tensors with output_tensor.numel() elements each; ignored elsewhere, may be [].
    root: rank that has the list.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    (N - 1) * B bytes sent by the root.)DOC";
inline constexpr const char* kGather =
    R"DOC(Collects every rank's tensor on `root`: slot i becomes rank i's `input_tensor`.

Args:
    output_tensor_list: on the root N tensors with input_tensor.numel() elements each; elsewhere ignored and untouched, may be [].
    input_tensor: contiguous, any shape.
    root: rank that gets the list.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    (N - 1) * B bytes received by the root.)DOC";
inline constexpr const char* kGatherSingle = R"DOC(As gather into one tensor, in rank order.

Args:
    output: on the root N * input.numel() elements, contiguous; elsewhere ignored.
    input: contiguous, any shape.
    root: rank that gets the result.
    async_op: False returns when the operation is done (GPU: ordered on the current stream);
        True returns at once, the returned work's wait() finishes it.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: limit of this operation; None: the communicator's default.
Returns:
    TorchWork; a finished one for async_op=False.
Raises:
    InvalidArgument: an argument differs from the above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    (N - 1) * B bytes received by the root.)DOC";

}  // namespace torch::comms::bindings::docs
