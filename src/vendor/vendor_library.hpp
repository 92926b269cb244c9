#pragma once

#include <span>
#include <string>
#include <string_view>

#include "vendor/abi.hpp"

namespace torch::comms::gpu {
struct RuntimeRow;
}

// Loading of vendor communication libraries: their descriptions, the list of symbols, and the
// function table.
namespace torch::comms::nccl {

// The functions of the library. REQUIRED(name): a library file without it is refused.
// OPTIONAL(name, since): checked on use; `since` is the NCCL version that introduced it. Functions
// with a unique id argument have a type for each id size, so they are stored untyped.
#define TC_NCCL_SYMBOLS(REQUIRED, OPTIONAL)      \
  REQUIRED(GetVersion)                           \
  REQUIRED(GetErrorString)                       \
  REQUIRED(CommDestroy)                          \
  REQUIRED(GroupStart)                           \
  REQUIRED(GroupEnd)                             \
  REQUIRED(AllReduce)                            \
  REQUIRED(Reduce)                               \
  REQUIRED(Broadcast)                            \
  REQUIRED(AllGather)                            \
  REQUIRED(ReduceScatter)                        \
  REQUIRED(Send)                                 \
  REQUIRED(Recv)                                 \
  OPTIONAL(AlltoAll, 22800)                      \
  OPTIONAL(AllToAll, 0) /* AlltoAll of oneCCL */ \
  OPTIONAL(CommCount, 20000)                     \
  OPTIONAL(CommAbort, 20400)                     \
  OPTIONAL(CommGetAsyncError, 20400)             \
  OPTIONAL(RedOpCreatePreMulSum, 21100)          \
  OPTIONAL(RedOpDestroy, 21100)                  \
  OPTIONAL(GetLastError, 21300)                  \
  OPTIONAL(CommFinalize, 21400)                  \
  OPTIONAL(CommSplit, 21800)                     \
  OPTIONAL(CommShrink, 22700)                    \
  OPTIONAL(CommRegister, 21900)                  \
  OPTIONAL(CommDeregister, 21900)                \
  OPTIONAL(MemAlloc, 21900)                      \
  OPTIONAL(MemFree, 21900)
// The functions for one-sided operations.
#define TC_NCCL_ONE_SIDED_SYMBOLS(OPTIONAL) \
  OPTIONAL(CommWindowRegister, 22700)       \
  OPTIONAL(CommWindowDeregister, 22700)     \
  OPTIONAL(PutSignal, 22900)                \
  OPTIONAL(Signal, 22900)                   \
  OPTIONAL(WaitSignal, 22900)

// Finds a function by its name without the prefix; null if missing.
using SymbolLookup = void*(std::string_view name);

// A vendor library: its names, and how it differs from the others.
struct Vendor {
  std::string_view backend;  // "nccl": the name in new_comm
  std::string_view library;  // "NCCL": the name in error texts
  std::string_view prefix;   // of its function names
  std::string_view stem;     // of its file names
  const char* soname;
  const char* library_variable;  // names the library file; read before any search
  size_t unique_id_bytes;
  const gpu::RuntimeRow* runtime;  // of its devices; nullptr: none known here
  abi::Result in_progress;         // the result "in progress"; -1: none
  bool has_config;                 // CommInitRank takes an abi::Config
  // Exported functions that do not work or have another signature; null-terminated.
  const char* const* unusable_symbols;
  // A built-in library: finds functions of this build instead of a file's.
  SymbolLookup* lookup = nullptr;
  // An environment variable, and its value, with which the library works on host memory. There each
  // call returns when its operation is done. nullptr: the library has no such mode.
  const char *host_variable = nullptr, *host_value = nullptr;
};
// Returns: whether the environment selects host memory for the library.
bool selects_host_memory(const Vendor& vendor);
extern const Vendor kNccl, kNcclx, kRccl, kRcclx, kOneCcl;

// The functions of a loaded library. Optional ones may be null; for a built-in library all may be.
class VendorLibrary {
 public:
  // Loads the library that the vendor's variable names, else the loaded one (torch's), else the one
  // that the loader finds. The library is never unloaded. A built-in library is not loaded, and
  // nothing is checked.
  // Throws: CommError(kBackendUnavailable) that says what was searched, or which function is
  // missing in which version and file.
  static VendorLibrary load(const Vendor& vendor);

  const Vendor& vendor() const noexcept { return *vendor_; }
  const std::string& path() const noexcept { return path_; }
  const std::string& selection_reason() const noexcept {
    return selection_reason_;
  }  // why this file was chosen
  // Returns: the library's version number, see version_text(); 0: unknown.
  int version() const noexcept { return version_; }
  std::string version_text() const;
  // Returns: whether operations take buffers in host memory.
  bool is_on_host_memory() const noexcept { return is_on_host_memory_; }
  // Returns: whether the vendor's variable selects host memory: no streams, and calls return when
  // the operation is done. See vendor/blocking_adapter/async_facade.hpp.
  bool is_blocking() const noexcept { return is_blocking_; }

  // Returns: the same library with the functions that `find` returns; the others are missing.
  VendorLibrary with_functions(SymbolLookup* find) const;

  // Throws: CommError(kUnsupported) without context if `function` is null: "<feature> needs NCCL
  // 2.18.0, ...".
  template <class Function>
  Function* require(Function* function, const char* feature, int since) const {
    if (function == nullptr) throw_missing(feature, since);
    return function;
  }

  // Throws: as require(), if the library is older than `since`.
  void require_version(const char* feature, int since) const {
    if (version_ < since) throw_missing(feature, since);
  }

  // `id` must have vendor().unique_id_bytes bytes.
  abi::Result get_unique_id(std::span<char> id) const;
  // `config` is ignored if the vendor has another configuration type, or if the library is too old.
  abi::Result init_rank(abi::Comm* comm, int size, std::span<const char> id, int rank,
                        abi::Config* config) const;
  // Returns: whether calls may return before they are done, so that an abort can end them.
  bool can_be_nonblocking() const noexcept;
  // Returns: whether the library has windows, puts and signals; all of them are needed.
  bool has_one_sided() const noexcept;
  // Throws: as require(), if has_one_sided() is false.
  void require_one_sided(const char* feature) const;

#define TC_NCCL_REQUIRED(name) abi::name* name = nullptr;
#define TC_NCCL_OPTIONAL(name, since) TC_NCCL_REQUIRED(name)
  TC_NCCL_SYMBOLS(TC_NCCL_REQUIRED, TC_NCCL_OPTIONAL)
  TC_NCCL_ONE_SIDED_SYMBOLS(TC_NCCL_OPTIONAL)
#undef TC_NCCL_REQUIRED
#undef TC_NCCL_OPTIONAL

 private:
  [[noreturn]] void throw_missing(const char* feature, int since) const;
  void* symbol(std::string_view name) const;
  template <class Get>
  void bind(const Get& get);

  const Vendor* vendor_ = nullptr;
  void* handle_ = nullptr;
  std::string path_, selection_reason_;
  int version_ = 0;
  bool is_on_host_memory_ = false, is_blocking_ = false;
  void *get_unique_id_ = nullptr, *init_rank_ = nullptr, *init_rank_config_ = nullptr;
};

// Formats an NCCL version number: "2.30.7" for 23007.
std::string version_text(int version);

}  // namespace torch::comms::nccl
