#include "base/os/system_error.hpp"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/os/file_size.hpp"
#include "base/os/handles.hpp"

namespace torch::comms::base {

namespace {

constexpr std::array kResourceErrnos{EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC, EDQUOT, EFBIG};

// Returns this process's soft limit on `resource`; nothing if unlimited.
std::optional<rlim_t> own_limit(decltype(RLIMIT_FSIZE) resource) noexcept {
  rlimit found{};
  if (::getrlimit(resource, &found) != 0 || found.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return found.rlim_cur;
}

// Returns a text about the process limit behind `error` and how to raise it; "" if no limit
// explains the error.
std::string limit_behind(int error) {
  if (error == EMFILE)
    if (const auto files = own_limit(RLIMIT_NOFILE))
      return ": no descriptor left, this process may open " + std::to_string(*files) +
             " (ulimit -n raises it)";
  if (error == EFBIG)
    if (const auto bytes = own_limit(RLIMIT_FSIZE))
      return ": a file of this process may have at most " + std::to_string(*bytes) +
             " bytes, as ulimit -f says (" + std::to_string(*bytes / 1024) +
             " blocks of 1024 bytes); ulimit -f unlimited raises it";
  if (error == ENOMEM)
    if (const auto bytes = own_limit(RLIMIT_AS))
      return ": this process may map at most " + std::to_string(*bytes) +
             " bytes (ulimit -v raises it)";
  return "";
}

}  // namespace

bool is_resource_exhausted(int error) noexcept {
  return std::find(kResourceErrnos.begin(), kResourceErrnos.end(), error) != kResourceErrnos.end();
}

int resource_errno_in(std::string_view message) noexcept {
  for (const int error : kResourceErrnos)
    if (message.find(std::strerror(error)) != std::string_view::npos) return error;
  return 0;
}

CommError system_error(const std::string& what, Context context) {
  return system_error(errno, what, std::move(context));
}

CommError system_error(int error, const std::string& what, Context context) {
  return {is_resource_exhausted(error) ? Errc::kResourceExhausted : Errc::kSystem,
          what + ": " + std::strerror(error) + limit_behind(error), std::move(context)};
}

void require_file_size(uint64_t size_bytes, const std::string& what) {
  if (const auto most = own_limit(RLIMIT_FSIZE); most && size_bytes > *most)
    throw system_error(EFBIG, what);
}

void require_descriptors(size_t count, const std::string& who) {
  std::vector<FileDescriptor> taken;
  taken.reserve(count);
  while (taken.size() < count) {
    taken.emplace_back(::eventfd(0, EFD_CLOEXEC));
    if (taken.back()) continue;
    const int error = errno;
    throw system_error(error, who + " needs " + std::to_string(count) + " descriptors");
  }
}

}  // namespace torch::comms::base
