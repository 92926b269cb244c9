#include "base/os/secret.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <torchcomms/base/error.hpp>

namespace torch::comms::base {
namespace {

void fill_random(void* into, size_t size) {
  const auto got = ::getrandom(into, size, 0);
  if (got != static_cast<ssize_t>(size))
    throw CommError(Errc::kSystem, std::string("getrandom: ") + std::strerror(errno));
}

}  // namespace

Secret random_secret() {
  Secret secret;
  fill_random(secret.data(), secret.size());
  return secret;
}

uint64_t random_number() {
  uint64_t number;
  fill_random(&number, sizeof number);
  return number;
}

bool constant_time_equal(const Secret& a, const Secret& b) noexcept {
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace torch::comms::base
