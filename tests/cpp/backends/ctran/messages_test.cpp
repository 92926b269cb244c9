// Messages of backend ctran, between ranks that are threads: what its engine's own tests cannot
// see.
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/comm.hpp>

#include "backends/ctran/ctran_backend.hpp"
#include "core/rendezvous.hpp"

namespace torch::comms {
namespace {

void on_ranks(int size, const std::function<void(TorchComm&, int rank)>& body) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        CommOptions options;
        options.store = store;
        options.timeout = std::chrono::seconds(60);
        options.hints["persistent_store"] = "true";
        bootstrap::Launch launch;
        launch.rank = rank;
        launch.size = size;
        launch.source = "the test";
        auto backend = std::make_shared<TorchCommCtran>();
        backend->init(launch, "world", options);
        const auto comm = TorchComm::wrap(std::move(backend), "ctran");
        body(*comm, rank);
        comm->barrier(false);
        comm->finalize();
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << " threw: " << e.what();
      }
    });
  for (auto& thread : threads) thread.join();
}

at::Tensor number(int value, int64_t count) { return at::full({count}, value, at::kInt); }

TEST(CtranMessages, MatchByTagWhateverTheirSize) {
  for (const int64_t count : {1, 300'000})
    on_ranks(2, [&](TorchComm& comm, int rank) {
      SendOptions send;
      RecvOptions recv;
      auto a = number(1, count), b = number(2, count), c = number(3, count);
      if (rank == 0) {
        std::vector<WorkPtr> works;
        send.tag = 7;
        works.push_back(comm.send(a, 1, true, send));
        send.tag = 8;
        works.push_back(comm.send(b, 1, true, send));
        works.push_back(comm.send(c, 1, true));
        for (const auto& work : works) work->wait();
      } else {
        comm.recv(a, 0, false);
        recv.tag = 8;
        comm.recv(b, 0, false, recv);
        recv.tag = 7;
        comm.recv(c, 0, false, recv);
        EXPECT_TRUE(a.eq(3).all().item<bool>());
        EXPECT_TRUE(b.eq(2).all().item<bool>());
        EXPECT_TRUE(c.eq(1).all().item<bool>());
      }
    });
}

TEST(CtranMessages, RefuseNegativeTagsBeforeAnythingIsSent) {
  on_ranks(2, [&](TorchComm& comm, int rank) {
    SendOptions send;
    send.tag = -1;
    const auto a = number(1, 1);
    try {
      comm.send(a, 1 - rank, false, send);
      ADD_FAILURE() << "accepted";
    } catch (const CommError& error) {
      EXPECT_EQ(error.code(), Errc::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("tag is -1"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace torch::comms
