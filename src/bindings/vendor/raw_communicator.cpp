#include "bindings/vendor/raw_communicator.hpp"

#include <chrono>
#include <string_view>
#include <utility>

#include "gpu/runtime.hpp"

namespace torch::comms::bindings {
namespace {

using nccl::abi::DataType;
using nccl::abi::Result;

constexpr std::chrono::seconds kRawTimeout{60};

struct RawElementType {
  std::string_view name;
  DataType dtype;
  size_t size_bytes;
};
constexpr RawElementType kElementTypes[] = {
    {"int8", DataType::kInt8, 1},       {"uint8", DataType::kUint8, 1},
    {"int32", DataType::kInt32, 4},     {"uint32", DataType::kUint32, 4},
    {"int64", DataType::kInt64, 8},     {"uint64", DataType::kUint64, 8},
    {"float16", DataType::kFloat16, 2}, {"float32", DataType::kFloat32, 4},
    {"float64", DataType::kFloat64, 8}, {"bfloat16", DataType::kBfloat16, 2},
};

// Converts an address from Python to a pointer.  NOLINTNEXTLINE(performance-no-int-to-ptr)
void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

size_t size_of(DataType dtype) {
  for (const auto& element : kElementTypes)
    if (element.dtype == dtype) return element.size_bytes;
  throw CommError(Errc::kInvalidArgument,
                  "unknown element type " + std::to_string(static_cast<int>(dtype)));
}

nccl::abi::Config blocking() {
  nccl::abi::Config config;
  config.blocking = 1;  // the library's own default, with the cheapest calls
  return config;
}

nccl::WaitOptions limited(const char* op) {
  return {nccl::Clock::now() + kRawTimeout,
          [] { return std::string("the vendor library did not finish within 60 s"); },
          [op] { return Context{.op = op}; },
          {}};
}

// Returns: a function that makes the calling thread's current device current in another thread.
nccl::Communicator::Prepare same_device(const nccl::VendorLibrary& library) {
  const auto* row = library.vendor().runtime;
  if (library.is_on_host_memory() || row == nullptr) return {};
  const auto runtime = std::make_shared<const gpu::Runtime>(gpu::Runtime::load(*row));
  return [runtime, device = runtime->device()] { runtime->set_device(device); };
}

}  // namespace

DataType dtype_of(const std::string& name) {
  std::string names;
  for (const auto& element : kElementTypes) {
    if (element.name == name) return element.dtype;
    names += (names.empty() ? "" : ", ") + std::string(element.name);
  }
  throw CommError(Errc::kInvalidArgument,
                  "the element type is '" + name + "', allowed are " + names);
}

RawCommunicator::RawCommunicator(const std::shared_ptr<const nccl::VendorLibrary>& library,
                                 int size, int rank, const std::string& id)
    : communicator_(nccl::Communicator::connect(library, size, rank, id, blocking(),
                                                same_device(*library), limited("raw connect"))),
      library_(communicator_->library()),
      size_(size) {}

Result RawCommunicator::call(RawCollective collective, const RawCallArguments& with) const {
  const void* input = at(with.input);
  void* output = at(with.output);
  auto* stream = static_cast<nccl::abi::Stream>(at(with.stream));
  auto* comm = communicator_->handle();
  constexpr auto kSum = nccl::abi::RedOp::kSum;
  switch (collective) {
    case RawCollective::kAllReduce:
      return library_.AllReduce(input, output, with.count, with.dtype, kSum, comm, stream);
    case RawCollective::kAllGather:
      return library_.AllGather(input, output, with.count, with.dtype, comm, stream);
    case RawCollective::kReduceScatter:
      return library_.ReduceScatter(input, output, with.count, with.dtype, kSum, comm, stream);
    case RawCollective::kBroadcast:
      return library_.Broadcast(input, output, with.count, with.dtype, with.root, comm, stream);
    case RawCollective::kAllToAll:
      return all_to_all(with);
  }
  return nccl::abi::kSuccess;
}

Result RawCommunicator::all_to_all(const RawCallArguments& with) const {
  auto* stream = static_cast<nccl::abi::Stream>(at(with.stream));
  auto* comm = communicator_->handle();
  if (library_.AlltoAll != nullptr)
    return library_.AlltoAll(at(with.input), at(with.output), with.count, with.dtype, comm, stream);
  const size_t part = with.count * size_of(with.dtype);
  library_.GroupStart();
  Result result = nccl::abi::kSuccess;
  for (int peer = 0; peer < size_ && result == nccl::abi::kSuccess; ++peer) {
    const size_t begin = part * static_cast<size_t>(peer);
    result = library_.Send(at(with.input + begin), with.count, with.dtype, peer, comm, stream);
    if (result == nccl::abi::kSuccess)
      result = library_.Recv(at(with.output + begin), with.count, with.dtype, peer, comm, stream);
  }
  const Result end = library_.GroupEnd();
  return result == nccl::abi::kSuccess ? end : result;
}

void RawCommunicator::enqueue(RawCollective collective, const RawCallArguments& with) const {
  if (communicator_->handle() == nullptr)
    throw CommError(Errc::kFinalized, "the raw communicator is closed");
  const Result result = call(collective, with);
  if (result != nccl::abi::kSuccess)
    throw CommError(Errc::kVendor, std::string(library_.vendor().library) + " " +
                                       library_.version_text() + ": " +
                                       library_.GetErrorString(result));
}

double RawCommunicator::enqueue_many(RawCollective collective, const RawCallArguments& with,
                                     int times) const {
  if (times < 1)
    throw CommError(Errc::kInvalidArgument,
                    "times is " + std::to_string(times) + ", allowed is 1 or more");
  const auto begin = nccl::Clock::now();
  for (int i = 0; i < times; ++i) enqueue(collective, with);
  const std::chrono::duration<double, std::micro> took = nccl::Clock::now() - begin;
  return took.count() / times;
}

void RawCommunicator::close() { communicator_->close(limited("raw close")); }

}  // namespace torch::comms::bindings
