#include "base/system_error.hpp"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/handles.hpp"

namespace torch::comms::base {

namespace {

constexpr std::array kScarcities{EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC};

}  // namespace

bool is_scarcity(int error) noexcept {
  return std::find(kScarcities.begin(), kScarcities.end(), error) != kScarcities.end();
}

int scarcity_in(std::string_view message) noexcept {
  for (const int error : kScarcities)
    if (message.find(std::strerror(error)) != std::string_view::npos) return error;
  return 0;
}

CommError system_error(const std::string& what, Context context) {
  return system_error(errno, what, std::move(context));
}

CommError system_error(int error, const std::string& what, Context context) {
  std::string why = what + ": " + std::strerror(error);
  rlimit files{};
  if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &files) == 0)
    why += ": no descriptor left, this process may open " + std::to_string(files.rlim_cur) +
           " (ulimit -n raises it)";
  return {is_scarcity(error) ? Errc::kResourceExhausted : Errc::kSystem, why, std::move(context)};
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
