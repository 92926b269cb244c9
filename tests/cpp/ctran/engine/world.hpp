#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ctran/engine/group/engine_group.hpp"
#include "transport/fault.hpp"

// The ranks of an engine test, as threads of this process. Each rank has a LinkContext of its own.
namespace torch::comms::ctran::test {

using schedule::Blocks;
using schedule::Operation;
using std::chrono::milliseconds;
using std::chrono::seconds;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr milliseconds kLong{20'000};  // timeout of steps that take milliseconds

// The all-gather of blobs by which the rank threads connect.
class AddressExchange {
 public:
  explicit AddressExchange(int size) : blobs_(static_cast<size_t>(size)), all_(size) {}
  AllGatherBlobs exchange(int rank) {
    return [this, rank](std::string mine) {
      blobs_[static_cast<size_t>(rank)] = std::move(mine);
      all_.arrive_and_wait();
      return blobs_;
    };
  }

 private:
  std::vector<std::string> blobs_;
  std::barrier<> all_;
};

// One rank of a test, as its body sees it.
struct Rank {
  std::unique_ptr<EngineGroup> group;
  std::barrier<>& all;  // of the rank threads; it sends no message over links
  int rank() const { return group->rank(); }
  int size() const { return group->size(); }
  // Blocks until all rank threads have called it or have failed.
  void sync() { all.arrive_and_wait(); }
};

// The ranks of one test and the options of their LinkContexts.
struct World {
  int size = 2;
  LinkPolicy links = LinkPolicy::kShm;
  int eager_ranks = 16;
  milliseconds query_timeout = kLong;  // long enough for a loaded machine
  std::optional<transport::FaultPlan> faults = std::nullopt;
  std::vector<std::string> hosts = {};             // by rank; see LinkContextOptions
  bool move_threads = true;                        // see LinkContextOptions
  std::function<void(int rank)> before = nullptr;  // on each rank's thread, before it connects
};

// Runs `body` on every rank. An exception of `body` fails the test, and aborts the groups of all
// ranks.
inline void run(const World& world, const std::function<void(Rank&)>& body) {
  const auto job = transport::random_secret();
  AddressExchange address_exchange(world.size);
  std::barrier all(world.size);
  std::vector<std::string> errors(static_cast<size_t>(world.size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.size; ++rank)
    threads.emplace_back([&, rank] {
      if (world.before) world.before(rank);
      LinkContextOptions options;
      options.links = world.links;
      options.interface = "127.0.0.1";
      options.eager_connect_ranks = world.eager_ranks;
      options.query_timeout = world.query_timeout;
      options.move_threads = world.move_threads;
      if (!world.hosts.empty()) options.host = world.hosts[static_cast<size_t>(rank)];
      if (world.faults) options.wrap = transport::inject_faults(*world.faults, rank);
      Rank self{nullptr, all};
      try {
        self.group = EngineGroup::world(
            LinkContext::create(rank, world.size, job, address_exchange.exchange(rank), options),
            "test");
        body(self);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
        if (self.group) self.group->abort("the test failed");
        all.arrive_and_drop();
      }
    });
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(errors[i], "") << "rank " << i;
}

template <class T>
ConstBytes bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <class T>
Bytes bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

// An EngineCall with one input buffer and one output buffer.
// Lifetime: the call is valid as long as this object and the memory.
struct Simple {
  ConstBytes input;
  Bytes output;
  EngineCall call;
  Simple(Operation operation, Blocks blocks, ConstBytes from, Bytes into, uint32_t element_bytes)
      : input(from), output(into) {
    call.name = schedule::operation_name(operation);
    call.operation = operation;
    call.blocks = blocks;
    call.element_bytes = element_bytes;
    call.input = {&input, 1};
    call.output = {&output, 1};
    call.timeout = kLong;
  }
  Simple(const Simple&) = delete;
};

inline EngineCall barrier(int size) {
  return {.name = "barrier",
          .operation = Operation::kBarrier,
          .blocks = Blocks::even(0, size),
          .timeout = kLong};
}

// An in-place all-reduce of float32 values.
struct AllReduce : Simple {
  AllReduce(std::vector<float>& values, int size)
      : Simple(Operation::kAllReduce, Blocks::even(static_cast<int64_t>(values.size()), size),
               bytes_of(std::as_const(values)), bytes_of(values), sizeof(float)) {
    call.dtype = static_cast<uint8_t>(Dtype::kFloat32);
  }
};

// A send or receive of float32 values.
struct Message : Simple {
  Message(Operation operation, int peer, std::vector<float>& values, int size)
      : Simple(operation, Blocks::even(static_cast<int64_t>(values.size()), size),
               bytes_of(std::as_const(values)), bytes_of(values), sizeof(float)) {
    call.dtype = static_cast<uint8_t>(Dtype::kFloat32);
    call.root = peer;
  }
};

// Runs `body`, which must throw a CommError.
// Returns: that error.
// Throws: std::runtime_error if `body` throws nothing.
inline CommError error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommError& error) {
    return error;
  }
  throw std::runtime_error("it should have failed");
}

}  // namespace torch::comms::ctran::test
