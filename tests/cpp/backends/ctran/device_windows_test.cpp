// Windows of backend ctran where kernels carry out what is on the device: the stand-in's, for host
// memory.
#include <dlfcn.h>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torchcomms/device/transport.hpp>
#include <torchcomms/device/window.hpp>

#include <barrier>
#include <fstream>
#include <string>
#include <vector>

#include "backends/ctran/stand_in_kernels.hpp"

namespace torch::comms::ctran_test {
namespace {

using nccl::error_of;
using nccl::Program;
using std::chrono::milliseconds;

class CtranDeviceWindows : public StandInKernels {};

float at_of(const at::Tensor& bytes, int64_t index) {
  return bytes.view(at::kFloat).const_data_ptr<float>()[index];
}

TEST_F(CtranDeviceWindows, PutsAndSignalsAreOnTheCurrentStreamAndTheHostGoesOn) {
  on_ranks(3, [](Program& self) {
    const auto window = self.comm->window_allocate(64);
    const int next = (self.rank + 1) % 3, before = (self.rank + 2) % 3;
    auto data = filled(0);
    const auto gate = self.close_gate();
    gpu::cpu_launch(self.stream, [&] { data.fill_(static_cast<float>(self.rank + 1)); });
    window->put(data, next, 2, false, {});
    window->signal(next, false, {});
    window->wait_signal(before, false, {});
    gate->set_value();  // the host has come here

    self.synchronize();
    EXPECT_EQ(at_of(*window->get_tensor(), 5), static_cast<float>(before + 1));
    EXPECT_EQ(at_of(*window->get_tensor(), 6), 0);
    // What others have is mapped, and alive.
    EXPECT_EQ(at_of(window->get_remote_tensor(next, {64}, at::kByte, 0), 2),
              static_cast<float>(self.rank + 1));
    window->tensor_deregister();
    self.comm->finalize();
  });
}

TEST_F(CtranDeviceWindows, WhatComesAfterAnAsynchronousWaitDoesNotWaitWithIt) {
  on_ranks(2, [](Program& self) {
    const auto window = self.comm->window_allocate(64);
    const auto wait = self.rank == 0 ? window->wait_signal(1, true, {}) : WorkPtr();
    auto tensor = filled(1);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
    EXPECT_FALSE(wait && wait->isCompleted());
    self.comm->barrier(true)->hostSynchronize();
    if (self.rank == 1) window->signal(0, false, {});
    if (wait) wait->hostSynchronize();
    window->tensor_deregister();
    self.comm->finalize();
  });
}

TEST_F(CtranDeviceWindows, AWaitHasALimitWhichEndsTheCommunicator) {
  on_ranks(2, [](Program& self) {
    const auto window = self.comm->window_allocate(64);
    if (self.rank == 0) {
      WaitSignalOptions options;
      options.timeout = milliseconds(200);
      const auto wait = window->wait_signal(1, true, options);
      const auto error = error_of([&] { wait->hostSynchronize(); });
      EXPECT_EQ(error.code(), Errc::kTimeout);
      EXPECT_EQ(error.context().op, "wait_signal");
      EXPECT_EQ(error_of([&] { window->signal(1, false, {}); }).code(), Errc::kTimeout);
    } else {
      const auto error = error_of([&] { window->wait_signal(0, true, {})->hostSynchronize(); });
      EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
      EXPECT_TRUE(error.why().starts_with("rank 0: ")) << error.what();
    }
  });
}

TEST_F(CtranDeviceWindows, AWindowThatIsLetGoIsStillThereForOthers) {
  on_ranks(2, [](Program& self) {
    auto window = self.comm->window_allocate(1 << 20);
    const auto other = window->clone();
    window->signal(1 - self.rank, false, {});
    window->wait_signal(1 - self.rank, false, {});
    if (self.rank == 0) window.reset();
    self.comm->barrier(false);
    const auto data = filled(3, 1 << 18);
    if (self.rank == 1)
      for (int i = 0; i < 10; ++i) window->put(data, 0, 0, false, {});
    self.comm->barrier(false);
    self.synchronize();
    EXPECT_EQ(other->get_size(), size_t{1} << 20);
    self.comm->finalize();
  });
}

TEST_F(CtranDeviceWindows, ARankAloneHasThem) {
  on_ranks(1, [](Program& self) {
    const auto window = self.comm->window_allocate(64, false, 8);
    EXPECT_EQ(window->getDevice(), self.comm->getDevice());
    const auto data = filled(3);
    window->put(data, 0, 4, false, {});
    window->signal(0, false, {});
    window->wait_signal(0, false, {});
    const auto waits = window->wait_slot(2, 5, SignalCmpOp::GE, true, {});
    window->signal_slot(2, 5, 0, false, {});
    waits->hostSynchronize();
    self.synchronize();
    EXPECT_EQ(at_of(*window->get_tensor(), 7), 3);
    EXPECT_EQ(window->get_attr(0)->access_type, TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED);
    EXPECT_EQ(at_of(window->get_remote_tensor(0, {64}, at::kByte, 0), 4), 3);
    const auto copy = window->clone();
    EXPECT_EQ(at_of(*copy->get_tensor(), 4), 3);
    // Collectives go on as before.
    auto tensor = filled(2);
    self.comm->all_reduce(tensor, ReduceOp::SUM, false);
    self.synchronize();
    EXPECT_EQ(tensor.const_data_ptr<float>()[0], 2);
    copy->tensor_deregister();
    window->tensor_deregister();
    self.comm->finalize();
  });
}

using Handle = torchcomms::device::TorchCommDeviceWindow<torchcomms::device::CtranBackend>;

const Handle& at(int64_t address) { return *reinterpret_cast<const Handle*>(address); }

// What a kernel does on `stream`: a thread of the host is a thread block.
TEST_F(CtranDeviceWindows, KernelsPutAndWaitByTheirHandle) {
  for (const int size : {1, 2})
    on_ranks(size, [size](Program& self) {
      const auto window = self.comm->window_allocate(64);
      const int other = size - 1 - self.rank;
      const auto code_of = [](const auto& call) { return error_of(call).code(); };
      auto data = filled(static_cast<float>(self.rank + 1));
      EXPECT_EQ(code_of([&] { window->register_local_buffer(data); }), Errc::kInvalidArgument);
      EXPECT_EQ(code_of([&] { window->get_device_window(-2); }), Errc::kInvalidArgument);
      EXPECT_EQ(code_of([&] { window->get_device_window(1 << 20); }), Errc::kOutOfRange);
      const auto address = window->get_device_window(4, 2, 1);
      EXPECT_EQ(window->get_device_window(8, 8, 8), address) << "it is made once";
      EXPECT_EQ(at(address).window().signals, 4);
      const auto buffer = window->register_local_buffer(data);
      int result = 1;
      gpu::cpu_launch(self.stream, [&] {
        const auto& here = at(address);
        const auto* source = reinterpret_cast<const RegisteredBuffer*>(buffer);
        result = here.put(16, *source, 0, other, 16, 3, 1);
        if (result == 0) result = here.wait_signal_from(other, 3, torchcomms::device::CmpOp::EQ, 1);
        if (result == 0) result = here.barrier(0);
      });
      self.synchronize();
      EXPECT_EQ(result, 0);
      EXPECT_EQ(at_of(*window->get_tensor(), 4), static_cast<float>(other + 1));
      EXPECT_EQ(window->get_nvlink_address(self.rank, 8),
                reinterpret_cast<int64_t>(window->get_tensor()->data_ptr()) + 8);
      EXPECT_NE(window->get_nvlink_address(other, 0), 0);
      EXPECT_EQ(code_of([&] { window->get_nvlink_address(0, 65); }), Errc::kOutOfRange);
      EXPECT_EQ(window->get_multimem_address(0), 0);
      window->deregister_local_buffer(buffer);
      EXPECT_EQ(code_of([&] { window->deregister_local_buffer(buffer); }), Errc::kInvalidArgument);
      window->tensor_deregister();
      self.comm->finalize();
    });
}

TEST_F(CtranDeviceWindows, KernelsHaveATransport) {
  for (const int size : {1, 2})
    on_ranks(size, [size](Program& self) {
      const auto address = self.comm->get_device_transport();
      EXPECT_EQ(self.comm->get_device_transport(), address) << "it is made once";
      const int other = size - 1 - self.rank;
      int sent = 1, received = 1;
      const std::vector<int> own(1000, self.rank + 7);
      std::vector<int> into(own.size());
      const size_t bytes = own.size() * sizeof(int);
      gpu::cpu_launch(self.stream, [&] {
        const auto& transport =
            *reinterpret_cast<const torchcomms::device::TorchCommDeviceTransport*>(address);
        sent = transport.send(other, own.data(), bytes);
        received = transport.recv(other, into.data(), bytes);
      });
      self.synchronize();
      EXPECT_EQ(sent, 0);
      EXPECT_EQ(received, 0);
      EXPECT_EQ(into, std::vector<int>(own.size(), other + 7));
      self.comm->finalize();
    });
}

TEST_F(CtranDeviceWindows, AKernelThatPassesTheTimeoutEndsTheCommunicator) {
  on_ranks(
      2,
      [](Program& self) {
        const auto window = self.comm->window_allocate(64);
        const auto address = window->get_device_window();
        int result = 1;
        if (self.rank == 0) {
          gpu::cpu_launch(self.stream, [&] {
            result = at(address).wait_signal_from(1, 0, torchcomms::device::CmpOp::GE, 1);
          });
          self.synchronize();
          EXPECT_EQ(result, torchcomms::device::kTimedOut);
          auto tensor = filled(1);
          const auto error = error_of(
              [&] { self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize(); });
          EXPECT_EQ(error.code(), Errc::kTimeout);
          EXPECT_EQ(error.context().peer, 1);
        }
      },
      milliseconds(300));
}

TEST_F(CtranDeviceWindows, MemoryOfTheAllocatorIsTheirs) {
  on_ranks(2, [](Program& self) {
    const auto allocator = get_mem_allocator("ctran");
    const auto memory = allocator->allocate(4096);
    std::fill_n(static_cast<float*>(memory.get()), 4, static_cast<float>(self.rank));
    EXPECT_NE(memory.get(), nullptr);
    self.comm->barrier(false);
    self.synchronize();
    self.comm->finalize();
  });
}

// Of all ranks so far.
int64_t launches() {
  void* const library = ::dlopen(std::getenv(kKernels), RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<int64_t (*)()>(::dlsym(library, "torchcomms_standin_kernels_launches"))();
}

TEST_F(CtranDeviceWindows, AllReducesByCopiesAreTwoLaunchesInGraphsAndBesideThem) {
  constexpr int kRanks = 2, kByCopies = 2;  // launches
  for (const bool of_communicator : {true, false}) {
    const Hints said{{"ctran::registered", "copies"}};
    std::barrier together(kRanks);
    const auto body = [&](Program& self) {
      const auto window = self.comm->window_allocate(size_t{8} << 20);
      auto tensor = window->get_tensor()->view(at::kFloat);
      AllReduceOptions options;
      if (!of_communicator) options.hints = said;
      const auto launched_by = [&](bool captures) {
        tensor.fill_(static_cast<float>(self.rank + 1));
        together.arrive_and_wait();
        const auto before = launches();
        together.arrive_and_wait();
        if (captures) gpu::cpu_begin_capture(self.stream);
        self.comm->all_reduce(tensor, ReduceOp::SUM, false, options);
        const auto graph = captures ? gpu::cpu_end_capture(self.stream) : nullptr;
        together.arrive_and_wait();
        const auto launched = launches() - before;
        if (captures) gpu::cpu_launch_graph(graph, self.stream);
        self.synchronize();
        EXPECT_TRUE(tensor.eq(3).all().item<bool>());
        together.arrive_and_wait();
        return launched;
      };
      for (const bool captures : {true, false, true})
        EXPECT_EQ(launched_by(captures), kRanks * kByCopies);
      window->tensor_deregister();
      self.comm->finalize();
    };
    on_ranks(kRanks, body, std::chrono::seconds(60),
             [&](int) { return of_communicator ? said : Hints(); });
  }
}

// Of 8 MiB and more a rank's own part is copied on a stream that launches share, of which captures
// and what is called beside them have to keep out of each other's way.
TEST_F(CtranDeviceWindows, LongPartsAreGatheredByCopiesInGraphsAndBesideThem) {
  constexpr int kRanks = 2;
  constexpr int64_t kPart = int64_t{8} << 20;
  const auto body = [](Program& self) {
    const auto window = self.comm->window_allocate(static_cast<size_t>(kRanks * kPart));
    auto output = *window->get_tensor();
    const auto input = at::full({kPart}, self.rank + 1, at::kByte);
    const auto gather = [&](bool async_op) {
      const auto work = self.comm->all_gather_single(output, input, async_op);
      if (async_op) work->wait();
    };
    const auto expect = [&](const char* what) {
      self.synchronize();
      for (int from = 0; from < kRanks; ++from)
        EXPECT_TRUE(output.narrow(0, from * kPart, kPart).eq(from + 1).all().item<bool>()) << what;
      output.zero_();
      self.comm->barrier(false);
      self.synchronize();
    };
    for (const bool async_op : {false, true}) {
      gather(async_op);
      expect("before the graph");
      gpu::cpu_begin_capture(self.stream);
      gather(async_op);
      gather(!async_op);
      const auto graph = gpu::cpu_end_capture(self.stream);
      for (int replay = 0; replay < 2; ++replay) {
        gpu::cpu_launch_graph(graph, self.stream);
        expect("a replay");
        gather(async_op);
        expect("between replays");
      }
    }
    window->tensor_deregister();
    self.comm->finalize();
  };
  on_ranks(kRanks, body, std::chrono::seconds(60),
           [](int) { return Hints{{"ctran::registered", "copies"}}; });
}

// Pieces of the device's memory that this process has mapped, of all ranks.
int64_t mapped() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("torchcomms-device") != std::string::npos ? 1 : 0;
  return count;
}

TEST_F(CtranDeviceWindows, MemoryOfClosedOnesGoesWithTheWaitsAndGraphsThatMayUseIt) {
  constexpr int kRanks = 2;
  std::barrier together(kRanks);
  on_ranks(kRanks, [&](Program& self) {
    const int peer = 1 - self.rank;
    const auto close_one = [&] { self.comm->window_allocate(64)->tensor_deregister(); };
    const auto count = [&] {
      together.arrive_and_wait();
      const auto now = mapped();
      together.arrive_and_wait();
      return now;
    };
    close_one();
    const auto before = count();
    auto data = filled(1);
    auto graph = [&] {
      const auto window = self.comm->window_allocate(64);
      gpu::cpu_begin_capture(self.stream);
      window->put(data, peer, 0, false, {});
      auto captured = gpu::cpu_end_capture(self.stream);
      window->tensor_deregister();
      return captured;
    }();
    const auto kept = count();
    EXPECT_GT(kept, before) << "the graph may be launched";
    for (int i = 0; i < 3; ++i) close_one();
    EXPECT_EQ(count(), kept) << "the graph is older than these";
    gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    graph = nullptr;
    close_one();
    EXPECT_EQ(count(), before);

    const auto other = self.comm->window_allocate(64);
    const auto open = count();
    const auto wait = other->wait_signal(peer, true, {});
    for (int i = 0; i < 3; ++i) close_one();
    EXPECT_GT(count(), open) << "nobody knows what the wait is for";
    other->signal(peer, false, {});
    wait->hostSynchronize();
    close_one();
    EXPECT_EQ(count(), open);
    other->tensor_deregister();
    self.comm->finalize();
  });
}

}  // namespace
}  // namespace torch::comms::ctran_test
