#pragma once

#include <map>
#include <string>

#include "backends/nccl/api/vendor_backends.hpp"

namespace torch::comms {

// Intel's library. It cannot abort its communicators.
//
// With CCL_PLUGIN=ONECCL_LEGACY_CPU it works on CPU tensors, by its part for the CPU: without
// messages between two ranks, which that part crashes in. See
// vendor/blocking_adapter/async_facade.hpp.
class TC_API TorchCommXCCL final : public VendorBackend<TorchCommXCCL, nccl::kOneCcl> {
 public:
  using VendorBackend::VendorBackend;

  Capabilities capabilities() const override;
  std::map<std::string, std::string> describe_entries() const override;

 private:
  nccl::VendorLibrary load_library() const override;
  bool is_on_host() const;
};

}  // namespace torch::comms
