#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/comm.hpp>

#include "core/rendezvous/rendezvous.hpp"
#include "tracing/recorder.hpp"

// Ranks as threads of this process, whatever their backend.
namespace torch::comms::backends_test {

inline CommOptions options_with(c10::intrusive_ptr<c10d::Store> store,
                                std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  CommOptions options;
  options.store = std::move(store);
  options.timeout = timeout;
  options.abort_process_on_timeout_or_error = false;
  // All ranks are in this process, so that no TCPStore has to be opened.
  options.hints["persistent_store"] = "true";
  return options;
}

inline bootstrap::LaunchInfo launch(int rank, int size) {
  bootstrap::LaunchInfo launch;
  launch.rank = rank;
  launch.size = size;
  launch.source = "the test";
  return launch;
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

// The same with what `start(rank)` gives: body(rank, started). The first body begins when all ranks
// have started: whom it aborts is not on the way into the communicator.
template <class Start, class Body>
void on_started_threads(int size, const Start& start, const Body& body) {
  std::latch starting(size);
  on_threads(size, [&](int rank) {
    std::optional<decltype(start(rank))> started;
    try {
      started = start(rank);
    } catch (...) {
      starting.count_down();
      throw;
    }
    starting.arrive_and_wait();
    body(rank, *started);
  });
}

// The event ring of this process has a place for none of the communicators that there are.
inline void push_out_of_the_ring() {
  for (size_t i = 0; i < tracing::kCommRows; ++i)
    tracing::process_ring().add_communicator({.name = "another", .rank = 0, .size = 1});
}

// The CommError that `body` throws.
inline CommError error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommError& e) {
    return e;
  }
  throw std::logic_error("nothing was thrown");
}

}  // namespace torch::comms::backends_test
