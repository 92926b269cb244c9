#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchcomms/comm.hpp>

#include "backends/nccl/api/vendor_backends.hpp"
#include "backends/ranks.hpp"
#include "gpu/cpu_runtime.hpp"
#include "gpu/runtime.hpp"
#include "vendor/stand_in.hpp"

// Ranks as threads of this process, over the stand-in library.
namespace torch::comms::nccl {

using backends_test::error_of;
using backends_test::options_with;

// A rank with a current stream of its own, as a program on a GPU has.
struct Program {
  int rank;
  std::shared_ptr<TorchComm> comm;
  gpu::NativeStream stream;

  void synchronize() const { gpu::Runtime::cpu().synchronize(stream); }
  // Holds the current stream up until the promise is kept.
  std::shared_ptr<std::promise<void>> close_gate() const {
    auto open = std::make_shared<std::promise<void>>();
    gpu::cpu_launch(stream, [gate = open->get_future().share()] { gate.wait(); });
    return open;
  }
};

// Runs `body` on `size` ranks, of whom each has what `make()` gives, connected, and works on a
// stream. What one throws fails the test. `hints_of(rank)`: those that are a rank's own.
template <class Make>
void run_ranks_of(const Make& make, int size, const std::function<void(Program&)>& body,
                  const CommOptions& shared, const std::string& backend,
                  const std::function<Hints(int)>& hints_of = {}) {
  backends_test::on_started_threads(
      size,
      [&](int rank) {
        const auto launch = backends_test::launch(rank, size);
        auto instance = make();
        auto options = shared;
        if (hints_of) options.hints.merge(hints_of(rank));
        if constexpr (requires { instance->init(at::kCPU, launch, "world", options); })
          instance->init(at::kCPU, launch, "world", options);
        else
          instance->init(launch, "world", options);
        return TorchComm::wrap(std::move(instance), backend);
      },
      [&](int rank, std::shared_ptr<TorchComm>& comm) {
        Program program{rank, std::move(comm), gpu::Runtime::cpu().create_stream(false)};
        {
          const gpu::CpuStreamGuard current(program.stream);
          body(program);
        }
        program.synchronize();
        gpu::Runtime::cpu().destroy_stream(program.stream);
      });
}

// For two ranks: the first runs `body`, while the other one stays away, and aborts afterwards.
inline std::function<void(Program&)> alone(const std::function<void(Program&)>& body) {
  const auto over = std::make_shared<std::promise<void>>();
  return [over, is_over = over->get_future().share(), body](Program& self) {
    if (self.rank == 1) {
      is_over.wait();
      return self.comm->abort();
    }
    const std::shared_ptr<void> at_end(nullptr, [&over](void*) { over->set_value(); });
    body(self);
  };
}

class VendorTest : public StandInTest {
 protected:
  using Backend = std::shared_ptr<NcclApiBackend>;
  // What ranks have for their backend.
  static inline Backend (*make_backend)(const std::string& name) =
      [](const std::string& name) -> Backend { return std::make_shared<TorchCommNCCL>(name); };

  void SetUp() override {
    ::setenv(kNccl.library_variable, stand_in("libstand_in_nccl.so").c_str(), 1);
  }

  // Runs `body` on `size` connected ranks, which work on streams. What one throws fails the test.
  void on_ranks(int size, const std::function<void(Program&)>& body,
                std::chrono::milliseconds timeout = std::chrono::seconds(60),
                const std::string& backend = "nccl", const Hints& hints = {}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    auto options = options_with(store, timeout);
    for (const auto& [key, value] : hints) options.hints[key] = value;
    on_ranks(size, body, options, backend);
  }
  static void on_ranks(int size, const std::function<void(Program&)>& body,
                       const CommOptions& options, const std::string& backend = "nccl") {
    run_ranks_of([&] { return make_backend(backend); }, size, body, options, backend);
  }
};

}  // namespace torch::comms::nccl
