#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/comm.hpp>

#include "backends/gloo/gloo_backend.hpp"
#include "core/rendezvous.hpp"

// Ranks as threads of this process.
namespace torch::comms::gloo_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline CommOptions options_with(c10::intrusive_ptr<c10d::Store> store,
                                milliseconds timeout = seconds(60)) {
  CommOptions options;
  options.store = std::move(store);
  options.timeout = timeout;
  // The memory of this process is meeting place enough: no TCPStore has to be opened.
  options.hints["persistent_store"] = "true";
  return options;
}

inline bootstrap::Launch launch(int rank, int size) {
  bootstrap::Launch launch;
  launch.rank = rank;
  launch.size = size;
  launch.source = "the test";
  return launch;
}

inline std::shared_ptr<TorchComm> make_comm(int rank, int size, const CommOptions& options,
                                            const std::string& name = "world") {
  auto backend = std::make_shared<TorchCommGloo>();
  backend->init(launch(rank, size), name, options);
  return TorchComm::wrap(std::move(backend), "gloo");
}

// Runs `body` on a thread a rank; what one throws fails the test, naming the rank.
inline void on_threads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&body, rank] {
      try {
        body(rank);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << " threw: " << e.what();
      }
    });
  for (auto& thread : threads) thread.join();
}

// Runs `body` on `size` connected ranks.
inline void on_ranks(int size, const std::function<void(TorchComm& comm, int rank)>& body,
                     milliseconds timeout = seconds(60)) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  on_threads(size, [&](int rank) {
    const auto comm = make_comm(rank, size, options_with(store, timeout));
    body(*comm, rank);
    comm->finalize();
  });
}

// The CommError that `body` throws.
inline CommError error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommError& e) {
    return e;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw something else than CommError: " << e.what();
    return CommError(Errc::kInternal, "");
  }
  ADD_FAILURE() << "threw nothing";
  return CommError(Errc::kInternal, "");
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "in: " << (text)

}  // namespace torch::comms::gloo_test
