#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu/cpu_runtime.hpp"
#include "gpu/runtime.hpp"
#include "vendor/communicator.hpp"
#include "vendor/stand_in.hpp"

namespace torch::comms::nccl {

inline WaitOptions within(std::chrono::milliseconds limit = std::chrono::seconds(30)) {
  return {Clock::now() + limit,
          [] { return std::string("not done within the limit of the test"); },
          {},
          {}};
}

// A rank of a test: a communicator, and a stream for its operations.
struct Rank {
  std::shared_ptr<Communicator> comm;
  gpu::NativeStream stream;

  int rank() const { return comm->rank(); }
  int size() const { return comm->size(); }
  // Launches `body` as one group, without waiting for it.
  using Body = std::function<abi::Result(const VendorLibrary&, abi::Comm)>;
  void launch(const Body& body) const {
    comm->group(body, [] { return within(); });
  }
  void run(const Body& body) const {
    launch(body);
    gpu::Runtime::cpu().synchronize(stream);
  }
};

// Runs `body` on `size` threads, each a rank. Throws what the first of them threw.
inline void with_ranks(const VendorLibrary& table, int size, const std::function<void(Rank&)>& body,
                       bool nonblocking = false) {
  const auto library = std::make_shared<const VendorLibrary>(table);
  const auto id = Communicator::make_id(table, {});
  abi::Config config;
  if (nonblocking) config.blocking = 0;
  std::vector<std::thread> threads;
  // Until all are through: whose communicator goes earlier lets the others' operations go.
  std::vector<std::shared_ptr<Communicator>> ended(static_cast<size_t>(size));
  std::mutex mutex;
  std::exception_ptr error;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Rank self{Communicator::connect(library, size, rank, id, config, {}, within()),
                  gpu::Runtime::cpu().create_stream(false)};
        body(self);
        ended[static_cast<size_t>(rank)] = self.comm;
        gpu::Runtime::cpu().destroy_stream(self.stream);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace torch::comms::nccl
