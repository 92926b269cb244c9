#pragma once

#include <memory>
#include <string>
#include <utility>

#include <torchcomms/factory.hpp>

#include "backends/nccl/api/nccl_api_backend.hpp"
#include "vendor/vendor_library.hpp"

// The backends by vendor.
namespace torch::comms {

// A backend over one row of the vendor table; its splits have the same class.
template <class Backend, const nccl::Vendor& kVendor, class Base = NcclApiBackend>
class VendorBackend : public Base {
 public:
  // Public, because the backends inherit it.
  // NOLINTNEXTLINE(bugprone-crtp-constructor-accessibility)
  explicit VendorBackend(std::string backend = std::string(kVendor.backend))
      : Base(kVendor, std::move(backend)) {}

 private:
  std::shared_ptr<NcclApiBackend> make_child() const final { return std::make_shared<Backend>(); }
};

// The backend over NVIDIA's NCCL. As "nccl-lazy", send() and recv() use a communicator for each
// pair of ranks, which the two create at their first message; its splits are plain "nccl".
class TC_API TorchCommNCCL final : public VendorBackend<TorchCommNCCL, nccl::kNccl> {
  using VendorBackend::VendorBackend;
  bool has_pair_communicators() const override { return getBackendName() == "nccl-lazy"; }
};

// The backend over AMD's RCCL.
class TC_API TorchCommRCCL final : public VendorBackend<TorchCommRCCL, nccl::kRccl> {
  using VendorBackend::VendorBackend;
};

// Registers a vendor's backend and its allocator under `name`.
template <class Backend>
struct VendorRegistration : BackendRegistration {
  explicit VendorRegistration(const std::string& name)
      : BackendRegistration(name, [name] { return std::make_shared<Backend>(name); }) {
    TorchCommFactory::get().register_allocator_factory(
        name, [name] { return Backend(name).make_allocator(); });
  }
};

}  // namespace torch::comms
