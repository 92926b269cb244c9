// Messages of backend ctran, between ranks that are threads: what its engine's own tests cannot
// see.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/comm.hpp>

#include "backends/ctran/ctran_backend.hpp"
#include "backends/ranks.hpp"

namespace torch::comms {
namespace {

void on_ranks(int size, const std::function<void(TorchComm&, int rank)>& body) {
  const auto options = backends_test::options_with(c10::make_intrusive<c10d::HashStore>());
  backends_test::on_started_threads(
      size,
      [&](int rank) {
        auto backend = std::make_shared<TorchCommCtran>();
        backend->init(backends_test::launch(rank, size), "world", options);
        return TorchComm::wrap(std::move(backend), "ctran");
      },
      [&](int rank, const std::shared_ptr<TorchComm>& comm) {
        body(*comm, rank);
        comm->barrier(false);
        comm->finalize();
      });
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
