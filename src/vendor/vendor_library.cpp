#include "vendor/vendor_library.hpp"

#include <dlfcn.h>

#include <cstring>
#include <utility>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"
#include "base/os/loaded_library.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::nccl {
namespace {

constexpr size_t kNcclId = 128, kOneCclId = 4096;
constexpr const char* kAllUsable[] = {nullptr};
constexpr const char* kOneCclUnusable[] = {"CommAbort", "CommGetAsyncError", "CommCount", nullptr};
constexpr int kNonblockingSince = 21400;
constexpr int kOneSidedSince = 22900;

struct OpenedVendorLibrary {
  void* handle = nullptr;
  std::string path, how;
};

OpenedVendorLibrary open(const Vendor& vendor) {
  if (vendor.lookup != nullptr)
    return {nullptr, base::path_of_library(reinterpret_cast<const void*>(vendor.lookup)),
            "part of this build"};
  const auto refuse = [&](const std::string& why) {
    throw CommError(Errc::kBackendUnavailable,
                    "backend '" + std::string(vendor.backend) + "' " + why);
  };
  std::string why;
  if (const auto file = base::env_text(vendor.library_variable)) {
    void* handle = base::open_library(*file, why);
    if (handle == nullptr)
      refuse("has no " + std::string(vendor.library) + " library: " + vendor.library_variable +
             " names " + *file + ", which does not load (" + why + ")");
    return {handle, *file, std::string("named by ") + vendor.library_variable};
  }
  for (auto& path : base::loaded_libraries(vendor.stem))
    if (void* handle = base::open_library(path, why); handle != nullptr)
      return {handle, std::move(path), "loaded already, by torch"};
  void* handle = base::open_library(vendor.soname, why);
  if (handle == nullptr)
    refuse("has no " + std::string(vendor.library) + " library: looked for the file in " +
           vendor.library_variable + " (unset), for " + std::string(vendor.stem) +
           "* among the loaded libraries, and for " + vendor.soname + " where the loader looks (" +
           why + "). Install it, or set " + vendor.library_variable);
  return {handle, vendor.soname, "found by the loader"};
}

bool is_unusable(const Vendor& vendor, std::string_view name) {
  for (const auto* const* row = vendor.unusable_symbols; *row != nullptr; ++row)
    if (name == *row) return true;
  return false;
}

template <size_t kBytes>
abi::UniqueId<kBytes> id_of(std::span<const char> bytes) {
  TC_CHECK(bytes.size() == kBytes);
  abi::UniqueId<kBytes> id;
  std::memcpy(id.internal, bytes.data(), kBytes);
  return id;
}

template <size_t kBytes>
abi::Result init(void* plain, void* with_config, abi::Comm* comm, int size,
                 std::span<const char> bytes, int rank, abi::Config* config) {
  using Count = typename abi::RankCount<kBytes>::Type;
  const auto id = id_of<kBytes>(bytes);
  if (with_config != nullptr)
    return reinterpret_cast<abi::CommInitRankConfig<kBytes>*>(with_config)(
        comm, static_cast<Count>(size), id, rank, config);
  return reinterpret_cast<abi::CommInitRank<kBytes>*>(plain)(comm, static_cast<Count>(size), id,
                                                             rank);
}

}  // namespace

const Vendor kNccl{.backend = "nccl",
                   .library = "NCCL",
                   .prefix = "nccl",
                   .stem = "libnccl.so",
                   .soname = "libnccl.so.2",
                   .library_variable = "TORCHCOMM_NCCL_LIBRARY",
                   .unique_id_bytes = kNcclId,
                   .runtime = &gpu::kCuda,
                   .in_progress = abi::kInProgress,
                   .has_config = true,
                   .unusable_symbols = kAllUsable};

const Vendor kNcclx{.backend = "ncclx",
                    .library = "NCCL",
                    .prefix = "nccl",
                    .stem = "libnccl.so",
                    .soname = "libnccl.so.2",
                    .library_variable = "TORCHCOMM_NCCLX_LIBRARY",
                    .unique_id_bytes = kNcclId,
                    .runtime = &gpu::kCuda,
                    .in_progress = abi::kInProgress,
                    .has_config = true,
                    .unusable_symbols = kAllUsable};

const Vendor kRccl{.backend = "rccl",
                   .library = "RCCL",
                   .prefix = "nccl",
                   .stem = "librccl.so",
                   .soname = "librccl.so.1",
                   .library_variable = "TORCHCOMM_RCCL_LIBRARY",
                   .unique_id_bytes = kNcclId,
                   .runtime = &gpu::kHip,
                   .in_progress = abi::kInProgress,
                   .has_config = true,
                   .unusable_symbols = kAllUsable};

const Vendor kRcclx{.backend = "rcclx",
                    .library = "RCCLX",
                    .prefix = "nccl",
                    .stem = "librcclx.so",
                    .soname = "librcclx.so.1",
                    .library_variable = "TORCHCOMM_RCCLX_LIBRARY",
                    .unique_id_bytes = kNcclId,
                    .runtime = &gpu::kHip,
                    .in_progress = abi::kInProgress,
                    .has_config = true,
                    .unusable_symbols = kAllUsable};

const Vendor kOneCcl{.backend = "xccl",
                     .library = "oneCCL",
                     .prefix = "oneccl",
                     .stem = "libccl.so.2",
                     .soname = "libccl.so.2",
                     .library_variable = "TORCHCOMM_XCCL_LIBRARY",
                     .unique_id_bytes = kOneCclId,
                     .runtime = nullptr,
                     .in_progress = 6,
                     .has_config = false,
                     .unusable_symbols = kOneCclUnusable,
                     .host_variable = "CCL_PLUGIN",
                     .host_value = "ONECCL_LEGACY_CPU"};

std::string version_text(int version) {
  // Versions up to 2.8 have fewer digits.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

bool selects_host_memory(const Vendor& vendor) {
  return vendor.host_variable != nullptr &&
         base::env_text(vendor.host_variable) == vendor.host_value;
}

void* VendorLibrary::symbol(std::string_view name) const {
  if (vendor_->lookup != nullptr) return vendor_->lookup(name);
  if (is_unusable(*vendor_, name)) return nullptr;
  return ::dlsym(handle_, (std::string(vendor_->prefix) + std::string(name)).c_str());
}

// Looks up all functions with `get(name, is_needed)`, which returns an address.
template <class Get>
void VendorLibrary::bind(const Get& get) {
#define TC_NCCL_REQUIRED(name) this->name = reinterpret_cast<abi::name*>(get(#name, true));
#define TC_NCCL_OPTIONAL(name, since) this->name = reinterpret_cast<abi::name*>(get(#name, false));
  TC_NCCL_SYMBOLS(TC_NCCL_REQUIRED, TC_NCCL_OPTIONAL)
  TC_NCCL_ONE_SIDED_SYMBOLS(TC_NCCL_OPTIONAL)
#undef TC_NCCL_REQUIRED
#undef TC_NCCL_OPTIONAL
  get_unique_id_ = get("GetUniqueId", true);
  init_rank_ = get("CommInitRank", true);
  if (vendor_->has_config) init_rank_config_ = get("CommInitRankConfig", false);
}

VendorLibrary VendorLibrary::with_functions(SymbolLookup* find) const {
  VendorLibrary table = *this;
  table.bind([find](std::string_view name, bool) { return find(name); });
  return table;
}

VendorLibrary VendorLibrary::load(const Vendor& vendor) {
  auto opened = open(vendor);
  VendorLibrary table;
  table.vendor_ = &vendor;
  table.handle_ = opened.handle;
  table.selection_reason_ = std::move(opened.how);
  table.GetVersion = reinterpret_cast<abi::GetVersion*>(table.symbol("GetVersion"));
  if (table.GetVersion != nullptr) {
    table.GetVersion(&table.version_);
    // The loader may have found the file by a bare name; this is its path.
    table.path_ = base::path_of_library(reinterpret_cast<const void*>(table.GetVersion));
  }
  if (table.path_.empty()) table.path_ = opened.path;
  const auto require = [&](void* address, std::string_view name) {
    if (address != nullptr || vendor.lookup != nullptr) return address;
    throw CommError(Errc::kBackendUnavailable,
                    "backend '" + std::string(vendor.backend) + "': " + table.path_ + " (" +
                        table.selection_reason_ + "), version " + table.version_text() +
                        ", has no function " + std::string(vendor.prefix) + std::string(name) +
                        ". To use another library, set " + std::string(vendor.library_variable));
  };
  table.bind([&](std::string_view name, bool is_needed) {
    return is_needed ? require(table.symbol(name), name) : table.symbol(name);
  });
  table.is_blocking_ = selects_host_memory(vendor);
  table.is_on_host_memory_ =
      table.is_blocking_ ||
      (vendor.lookup != nullptr ? vendor.lookup(abi::kHostMemorySymbol)
                                : ::dlsym(table.handle_, abi::kHostMemorySymbol)) != nullptr;
  return table;
}

std::string VendorLibrary::version_text() const {
  return vendor_->has_config ? nccl::version_text(version_) : std::to_string(version_);
}

bool VendorLibrary::can_be_nonblocking() const noexcept {
  return init_rank_config_ != nullptr && CommGetAsyncError != nullptr &&
         version_ >= kNonblockingSince;
}

bool VendorLibrary::has_one_sided() const noexcept {
#define TC_NCCL_HAS(name, since) \
  if ((name) == nullptr) return false;
  TC_NCCL_ONE_SIDED_SYMBOLS(TC_NCCL_HAS)
#undef TC_NCCL_HAS
  return true;
}

void VendorLibrary::require_one_sided(const char* feature) const {
  if (!has_one_sided()) throw_missing(feature, kOneSidedSince);
}

void VendorLibrary::throw_missing(const char* feature, int since) const {
  // Only for NCCL and compatible libraries is the required version known.
  const auto needs = vendor_->has_config ? " needs " + std::string(vendor_->library) + " " +
                                               nccl::version_text(since) + "; " + path_ + " is "
                                         : " is not supported by " + path_ + ", version ";
  throw CommError(Errc::kUnsupported, std::string(feature) + needs + version_text() +
                                          (vendor_->has_config ? " and does not have it" : ""));
}

abi::Result VendorLibrary::get_unique_id(std::span<char> id) const {
  TC_CHECK(id.size() == vendor_->unique_id_bytes);
  const auto get = [&]<size_t kBytes>(std::integral_constant<size_t, kBytes>) {
    abi::UniqueId<kBytes> unique_id{};
    const auto result = reinterpret_cast<abi::GetUniqueId<kBytes>*>(get_unique_id_)(&unique_id);
    std::memcpy(id.data(), unique_id.internal, kBytes);
    return result;
  };
  return id.size() == kNcclId ? get(std::integral_constant<size_t, kNcclId>{})
                              : get(std::integral_constant<size_t, kOneCclId>{});
}

abi::Result VendorLibrary::init_rank(abi::Comm* comm, int size, std::span<const char> id, int rank,
                                     abi::Config* config) const {
  const auto with = vendor_->unique_id_bytes == kNcclId ? init<kNcclId> : init<kOneCclId>;
  return with(init_rank_, init_rank_config_, comm, size, id, rank, config);
}

}  // namespace torch::comms::nccl
