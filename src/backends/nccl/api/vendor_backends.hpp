#pragma once

#include <memory>
#include <string>
#include <utility>

#include <torchcomms/factory.hpp>

#include "backends/nccl/api/nccl_api_backend.hpp"
#include "vendor/vendor_library.hpp"

// The backends, by vendor: what is theirs alone.
namespace torch::comms {

// The backend over a row of the table, whose splits are of the same class.
template <class Backend, const nccl::Vendor& kVendor, class Base = NcclApiBackend>
class VendorBackend : public Base {
 public:
  // Inherited by the backends, so public.  NOLINTNEXTLINE(bugprone-crtp-constructor-accessibility)
  explicit VendorBackend(std::string backend = std::string(kVendor.backend))
      : Base(kVendor, std::move(backend)) {}

 private:
  std::shared_ptr<NcclApiBackend> make_child() const final { return std::make_shared<Backend>(); }
};

// NVIDIA's library. As "nccl-lazy", messages of single calls have a communicator for each pair of
// ranks, which the two make at their first message; a split of it is a plain one.
class TC_API TorchCommNCCL final : public VendorBackend<TorchCommNCCL, nccl::kNccl> {
  using VendorBackend::VendorBackend;
  bool has_pair_communicators() const override { return getBackendName() == "nccl-lazy"; }
};

// AMD's library.
class TC_API TorchCommRCCL final : public VendorBackend<TorchCommRCCL, nccl::kRccl> {
  using VendorBackend::VendorBackend;
};

// Registers a vendor's backend and its allocator.
template <class Backend>
struct VendorRegistration : BackendRegistration {
  explicit VendorRegistration(const std::string& name)
      : BackendRegistration(name, [name] { return std::make_shared<Backend>(name); }) {
    TorchCommFactory::get().register_allocator_factory(
        name, [name] { return Backend(name).make_allocator(); });
  }
};

}  // namespace torch::comms
