#pragma once

// Docstrings of the operations: shapes, errors, cost. N is the number of ranks, B the bytes of one
// rank's tensor.
namespace torch::comms::bindings::docs {

// The parts of a docstring that differ between the operations. kOptionsAndErrors lies between them.
struct OperationDoc {
  const char* purpose_and_args;
  const char* cost;
};

inline constexpr const char* kOptionsAndErrors = R"DOC(
    async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
        True: returns at once; call wait() on the returned work.
    hints: per-call hints of the backend; unknown keys are ignored.
    timeout: timeout of this operation; None: the communicator's default.
Returns:
    TorchWork; already complete if async_op=False.
Raises:
    InvalidArgument: an argument is not as described above; nothing was sent.
    Unsupported: the backend lacks the operation, dtype or device.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    )DOC";

inline constexpr OperationDoc kSend = {
    R"DOC(Sends `tensor` to rank `dst`. Sends match the recv calls of that rank in order.

Args:
    tensor: contiguous, any shape.
    dst: receiving rank.)DOC",
    "B bytes sent, one message."};
inline constexpr OperationDoc kRecv = {R"DOC(Receives a message of rank `src` into `tensor`.

Args:
    tensor: contiguous, any shape, with as many elements as are sent.
    src: sending rank.)DOC",
                                       "B bytes received, one message."};
inline constexpr OperationDoc kBroadcast = {
    R"DOC(Copies `root`'s tensor to every rank.

Args:
    tensor: contiguous, any shape, as many elements on all ranks; in place.
    root: rank whose tensor is copied.)DOC",
    "B bytes received per rank; about log2(N) steps on a tree."};
inline constexpr OperationDoc kAllReduce = {
    R"DOC(Combines all ranks' tensors element by element; every rank gets the result, in place.

Args:
    tensor: contiguous, any shape, as many elements on all ranks.
    op: ReduceOp. MIN and MAX need an ordered dtype; BAND, BOR and BXOR need integers or bool.)DOC",
    "2 (N - 1) / N * B bytes sent per rank on a ring."};
inline constexpr OperationDoc kReduce = {
    R"DOC(Combines all ranks' tensors element by element; only `root` gets the result, in place.

Args:
    tensor: contiguous, any shape, as many elements on all ranks; unchanged on other ranks.
    root: rank that gets the result.
    op: ReduceOp. MIN and MAX need an ordered dtype; BAND, BOR and BXOR need integers or bool.)DOC",
    "about B bytes sent per rank."};
inline constexpr OperationDoc kAllGather = {
    R"DOC(Gathers every rank's tensor on every rank: tensor_list[i] becomes rank i's `tensor`.

Args:
    tensor_list: N tensors, each with tensor.numel() elements, contiguous.
    tensor: contiguous, any shape.)DOC",
    "(N - 1) * B bytes received per rank."};
inline constexpr OperationDoc kAllGatherV = {
    R"DOC(Gathers tensors of different sizes: tensor_list[i] becomes rank i's `tensor`.

Args:
    tensor_list: N contiguous tensors; tensor_list[i] has as many elements as rank i's `tensor`.
    tensor: contiguous, any shape; tensor_list[rank] has as many elements.)DOC",
    "the sum of the peer ranks' bytes received per rank."};
inline constexpr OperationDoc kAllGatherSingle = {
    R"DOC(Concatenates every rank's `input` into `output`, in rank order.

Args:
    output: N * input.numel() elements, contiguous.
    input: contiguous, any shape.)DOC",
    "(N - 1) * B bytes received per rank."};
inline constexpr OperationDoc kReduceScatter = {
    R"DOC(Combines input_list[r] of every rank element by element; rank r gets the result.

Args:
    output: contiguous, any shape.
    input_list: N tensors, each with output.numel() elements, contiguous.
    op: ReduceOp. MIN and MAX need an ordered dtype; BAND, BOR and BXOR need integers or bool.)DOC",
    "(N - 1) * B bytes sent per rank, B being the output's."};
inline constexpr OperationDoc kReduceScatterV = {
    R"DOC(Combines input_list[r] of every rank, with a size per rank r; rank r gets the result.

Args:
    output: contiguous, any shape; as many elements as input_list[rank].
    input_list: N tensors; input_list[i] has the same number of elements on all ranks.
    op: ReduceOp. MIN and MAX need an ordered dtype; BAND, BOR and BXOR need integers or bool.)DOC",
    "the sum of the other slots' bytes sent per rank."};
inline constexpr OperationDoc kReduceScatterSingle = {
    R"DOC(Combines all ranks' `input` element by element; rank r gets the r-th of N equal parts.

Args:
    output: contiguous, any shape.
    input: N * output.numel() elements, contiguous.
    op: ReduceOp. MIN and MAX need an ordered dtype; BAND, BOR and BXOR need integers or bool.)DOC",
    "(N - 1) * B bytes sent per rank, B being the output's."};
inline constexpr OperationDoc kAllToAllSingle = {
    R"DOC(Sends part i of `input` to rank i; part i of `output` comes from rank i.

Args:
    output: as many elements as input, contiguous.
    input: contiguous, any shape; the element count divides by N.)DOC",
    "(N - 1) / N * B bytes sent and received per rank."};
inline constexpr OperationDoc kAllToAllVSingle = {
    R"DOC(Sends rows of `input` to each rank and receives rows into `output`, with a count per pair of ranks.

Args:
    output: contiguous; rows as wide as the input's.
    input: contiguous, any shape.
    output_split_sizes: N numbers of rows (dimension 0) received from each rank; their sum may be below output's rows.
    input_split_sizes: N numbers of rows sent to each rank; their sum may be below input's rows.)DOC",
    "the bytes of the rows sent and received."};
inline constexpr OperationDoc kAllToAll = {
    R"DOC(Sends tensor i of the input list to rank i; tensor i of the output list comes from rank i.

Args:
    output_tensor_list: N contiguous tensors; tensor i has as many elements as rank i sends here.
    input_tensor_list: N contiguous tensors.)DOC",
    "the bytes of the peer ranks' tensors sent and received."};
inline constexpr OperationDoc kBarrier = {
    R"DOC(Blocks until every rank has called barrier() (GPU: the current stream waits, the host continues).

Args:)DOC",
    "about 2 log2(N) small messages."};
inline constexpr OperationDoc kScatter = {R"DOC(Sends input_tensor_list[i] of `root` to rank i.

Args:
    output_tensor: contiguous, any shape.
    input_tensor_list: on the root N tensors with output_tensor.numel() elements each; ignored elsewhere, may be [].
    root: rank that has the list.)DOC",
                                          "(N - 1) * B bytes sent by the root."};
inline constexpr OperationDoc kGather = {
    R"DOC(Gathers every rank's tensor on `root`: output_tensor_list[i] becomes rank i's `input_tensor`.

Args:
    output_tensor_list: on the root N tensors with input_tensor.numel() elements each; unchanged elsewhere, may be [].
    input_tensor: contiguous, any shape.
    root: rank that gets the list.)DOC",
    "(N - 1) * B bytes received by the root."};
inline constexpr OperationDoc kGatherSingle = {
    R"DOC(Concatenates every rank's `input` into `output` on `root`, in rank order.

Args:
    output: on the root N * input.numel() elements, contiguous; elsewhere ignored.
    input: contiguous, any shape.
    root: rank that gets the result.)DOC",
    "(N - 1) * B bytes received by the root."};

}  // namespace torch::comms::bindings::docs
