#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <torchcomms/base/export.hpp>
#include <torchcomms/capabilities.hpp>
#include <torchcomms/operation.hpp>

namespace torch::comms {

// The facts about a communicator that the argument checks need.
struct CommFacts {
  int rank;
  int size;
  const Capabilities& capabilities;
  const std::string& backend;
  const std::string& name;
};

// Checks the arguments of an operation before anything is sent.
// Throws: CommError: kInvalidArgument for a wrong root, peer, tensor, list or size; kUnsupported
// for an operation, dtype, device or reduction that the backend lacks. The text has the value and
// what is allowed.
void validate(const Send& op, const CommFacts& comm);
void validate(const Recv& op, const CommFacts& comm);
void validate(const Broadcast& op, const CommFacts& comm);
void validate(const AllReduce& op, const CommFacts& comm);
void validate(const Reduce& op, const CommFacts& comm);
void validate(const AllGather& op, const CommFacts& comm);
void validate(const AllGatherV& op, const CommFacts& comm);
void validate(const AllGatherSingle& op, const CommFacts& comm);
void validate(const ReduceScatter& op, const CommFacts& comm);
void validate(const ReduceScatterV& op, const CommFacts& comm);
void validate(const ReduceScatterSingle& op, const CommFacts& comm);
void validate(const AllToAllSingle& op, const CommFacts& comm);
void validate(const AllToAllVSingle& op, const CommFacts& comm);
void validate(const AllToAll& op, const CommFacts& comm);
void validate(const Barrier& op, const CommFacts& comm);
void validate(const Scatter& op, const CommFacts& comm);
void validate(const Gather& op, const CommFacts& comm);
void validate(const GatherSingle& op, const CommFacts& comm);
void validate(const Split& op, const CommFacts& comm);
void validate(const BatchOpIssue& op, const CommFacts& comm);

// Check the arguments of window methods, which are no Operation: `method` is the public name.
void validate_window_tensor(std::string_view method, const at::Tensor& tensor,
                            const CommFacts& comm);
void validate_window_rank(std::string_view method, const char* what, int rank,
                          const CommFacts& comm);
void validate_window_timeout(std::string_view method, std::chrono::milliseconds timeout,
                             const CommFacts& comm);

// Returns: the error text for a tensor that is not contiguous. It says what can replace the tensor,
// and that a replaced output does not fill the original.
TC_API std::string format_not_contiguous(const std::string& tensor);

}  // namespace torch::comms
