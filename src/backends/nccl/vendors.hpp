#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backends/nccl/vendor_backend.hpp"
#include "nccl/table.hpp"

// The backends, by vendor: what is theirs alone.
namespace torch::comms {

// NVIDIA's library. As "nccl-lazy", messages of single calls have a communicator for each pair of
// ranks, which the two make at their first message; a split of it is a plain one.
class TC_API TorchCommNCCL final : public TorchCommVendor {
 public:
  explicit TorchCommNCCL(std::string backend = "nccl")
      : TorchCommVendor(nccl::kNccl, backend), lazy_(backend == "nccl-lazy") {}

 private:
  bool has_pairs() const override { return lazy_; }
  std::shared_ptr<TorchCommVendor> child() const override {
    return std::make_shared<TorchCommNCCL>();
  }
  const bool lazy_;
};

// AMD's library, and its extended build.
class TC_API TorchCommRCCL final : public TorchCommVendor {
 public:
  explicit TorchCommRCCL(std::string backend = "rccl")
      : TorchCommVendor(nccl::kRccl, std::move(backend)) {}

 private:
  std::shared_ptr<TorchCommVendor> child() const override {
    return std::make_shared<TorchCommRCCL>();
  }
};

class TC_API TorchCommRCCLX final : public TorchCommVendor {
 public:
  explicit TorchCommRCCLX(std::string backend = "rcclx")
      : TorchCommVendor(nccl::kRcclx, std::move(backend)) {}

 private:
  std::shared_ptr<TorchCommVendor> child() const override {
    return std::make_shared<TorchCommRCCLX>();
  }
};

// Intel's library. It cannot abort its communicators.
class TC_API TorchCommXCCL final : public TorchCommVendor {
 public:
  explicit TorchCommXCCL(std::string backend = "xccl")
      : TorchCommVendor(nccl::kOneCcl, std::move(backend)) {}

 private:
  std::shared_ptr<TorchCommVendor> child() const override {
    return std::make_shared<TorchCommXCCL>();
  }
};

}  // namespace torch::comms
