#include "base/system_error.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace torch::comms::base {

bool is_scarcity(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
         error == ENOSPC;
}

CommError system_error(const std::string& what, Context context) {
  const int error = errno;
  std::string why = what + ": " + std::strerror(error);
  rlimit files{};
  if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &files) == 0)
    why += ": no descriptor left, this process may open " + std::to_string(files.rlim_cur) +
           " (ulimit -n raises it)";
  return {is_scarcity(error) ? Errc::kResourceExhausted : Errc::kSystem, why, std::move(context)};
}

}  // namespace torch::comms::base
