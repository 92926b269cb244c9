#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ctran/kernels/host/library.hpp"
#include "world.hpp"

namespace native {

// NCCL, bound at run time, over the GPUs of a world: the yardstick.
class Nccl {
 public:
  // Null where there is no such library. Throws if there is one that does not work.
  static std::unique_ptr<Nccl> open(const World& world, const std::string& library);
  ~Nccl();

  int version() const { return version_; }
  // Memory of each rank that is a symmetric window; empty where this NCCL has none.
  std::vector<char*> symmetric_memory(size_t bytes);
  // bfloat16, sums. False for a collective that is not measured.
  bool enqueue(int rank, const kernels::KernelCall& call);
  // A group of sends and receives.
  void exchange(int rank, std::span<const kernels::KernelMessage> messages);

 private:
  struct Table;
  explicit Nccl(const World& world);

  const World& world_;
  std::unique_ptr<Table> table_;
  std::vector<void*> comms_;
  int version_ = 0;
};

}  // namespace native
