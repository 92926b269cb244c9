#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchcomms/comm.hpp>

#include "backends/gloo/gloo_backend.hpp"
#include "backends/ranks.hpp"

// Ranks as threads of this process.
namespace torch::comms::gloo_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

using backends_test::error_of;
using backends_test::launch;
using backends_test::on_threads;
using backends_test::options_with;

inline std::shared_ptr<TorchComm> make_comm(int rank, int size, const CommOptions& options,
                                            const std::string& name = "world") {
  auto backend = std::make_shared<TorchCommGloo>();
  backend->init(launch(rank, size), name, options);
  return TorchComm::wrap(std::move(backend), "gloo");
}

// Runs `body` on `size` connected ranks.
inline void on_ranks(int size, const std::function<void(TorchComm& comm, int rank)>& body,
                     milliseconds timeout = seconds(60)) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  backends_test::on_started_threads(
      size, [&](int rank) { return make_comm(rank, size, options_with(store, timeout)); },
      [&](int rank, const std::shared_ptr<TorchComm>& comm) {
        body(*comm, rank);
        comm->finalize();
      });
}

// Counts a latch down when its scope ends, by an error too: other ranks that wait for it go on.
class CountDownAtExit {
 public:
  explicit CountDownAtExit(std::latch& latch) : latch_(latch) {}
  ~CountDownAtExit() { latch_.count_down(); }
  CountDownAtExit(const CountDownAtExit&) = delete;
  CountDownAtExit& operator=(const CountDownAtExit&) = delete;

 private:
  std::latch& latch_;
};

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "in: " << (text)

}  // namespace torch::comms::gloo_test
