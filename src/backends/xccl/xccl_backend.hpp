#pragma once

#include <map>
#include <string>

#include "backends/nccl/api/vendor_backends.hpp"

namespace torch::comms {

// The backend over Intel's oneCCL, which cannot abort its communicators.
//
// With CCL_PLUGIN=ONECCL_LEGACY_CPU it works on CPU tensors, through oneCCL's CPU part. It then has
// no send and recv, in which that part crashes. See vendor/blocking_adapter/async_facade.hpp.
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
