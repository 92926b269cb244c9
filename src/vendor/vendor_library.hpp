#pragma once

#include <span>
#include <string>
#include <string_view>

#include "vendor/abi.hpp"

namespace torch::comms::gpu {
struct RuntimeRow;
}

// A vendor's communication library: a row, a list of symbols, and the table of both.
namespace torch::comms::nccl {

// REQUIRED(name): without it the library is refused. OPTIONAL(name, since): asked for when it is
// used; `since` is the version of NCCL that brought it. Functions with a unique id in them have a
// type for each size of it, and stand in the table untyped.
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
  OPTIONAL(AllToAll, 0) /* the same of oneCCL */ \
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
// The same, of what one side does alone.
#define TC_NCCL_ONE_SIDED_SYMBOLS(OPTIONAL) \
  OPTIONAL(CommWindowRegister, 22700)       \
  OPTIONAL(CommWindowDeregister, 22700)     \
  OPTIONAL(PutSignal, 22900)                \
  OPTIONAL(Signal, 22900)                   \
  OPTIONAL(WaitSignal, 22900)

// Functions by their names without the prefix; null for one that is not there.
using SymbolLookup = void*(std::string_view name);

// A vendor is a row.
struct Vendor {
  std::string_view backend;  // "nccl": the name in new_comm
  std::string_view library;  // "NCCL": the name in error texts
  std::string_view prefix;   // of its functions
  std::string_view stem;     // what its file names begin with
  const char* soname;
  const char* library_variable;  // names the library's file, and is looked at first
  size_t unique_id_bytes;
  const gpu::RuntimeRow* runtime;  // of its devices; nullptr: none is known here
  abi::Result in_progress;         // the number of "in progress"; -1: there is none
  bool has_config;                 // its configuration is abi::Config
  // Functions it exports without their working, or with another signature; ends with null.
  const char* const* unusable_symbols;
  // In the place of a file: our own code, by function's name; null for those it has not.
  SymbolLookup* lookup = nullptr;
  // The variable, and its value, that have the library work on host memory instead, where each call
  // returns when its operation is done; nullptr: it has no such part.
  const char *host_variable = nullptr, *host_value = nullptr;
};
// Whether the environment has its library work on host memory.
bool selects_host_memory(const Vendor& vendor);
extern const Vendor kNccl, kNcclx, kRccl, kRcclx, kOneCcl;

// A library's functions. Optional ones may be null, and of our own code all may.
class VendorLibrary {
 public:
  // The library that the variable names, else the one that is loaded already (torch's), else the
  // one that the loader finds. Throws CommError(kBackendUnavailable) saying what was looked for, or
  // which function is missing, in which version, from which file.
  static VendorLibrary load(const Vendor& vendor);

  const Vendor& vendor() const noexcept { return *vendor_; }
  const std::string& path() const noexcept { return path_; }
  const std::string& selection_reason() const noexcept {
    return selection_reason_;
  }  // why this file
  int version() const noexcept { return version_; }
  std::string version_text() const;
  bool is_on_host_memory() const noexcept { return is_on_host_memory_; }
  // It is on host memory as the vendor's own variable says: no streams, calls return when the
  // operation is done. See vendor/blocking_adapter/async_facade.hpp.
  bool is_blocking() const noexcept { return is_blocking_; }

  // The same library behind functions that `find` has; those it has not, this one has not, either.
  VendorLibrary with_functions(SymbolLookup* find) const;

  // Throws CommError(kUnsupported) without context: "<feature> needs NCCL 2.18.0, ...".
  template <class Function>
  Function* require(Function* function, const char* feature, int since) const {
    if (function == nullptr) throw_missing(feature, since);
    return function;
  }

  // The same for what is no function.
  void require_version(const char* feature, int since) const {
    if (version_ < since) throw_missing(feature, since);
  }

  // `id` has vendor().unique_id_bytes bytes.
  abi::Result get_unique_id(std::span<char> id) const;
  // `config` is left out where the vendor has another, or the library is too old for it.
  abi::Result init_rank(abi::Comm* comm, int size, std::span<const char> id, int rank,
                        abi::Config* config) const;
  // Whether calls may return before they are done, so that an abort can end them.
  bool can_be_nonblocking() const noexcept;
  // Windows, puts, and signals that are waited for: all of it, or none.
  bool has_one_sided() const noexcept;
  // Throws as require_peer() where it is not.
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

// "2.30.7".
std::string version_text(int version);

}  // namespace torch::comms::nccl
