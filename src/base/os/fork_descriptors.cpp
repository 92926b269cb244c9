#include "base/os/fork_descriptors.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/os/handles.hpp"

namespace torch::comms::base {
namespace {

// One bit per descriptor. No lock guards them, because the atfork handler reads them in the child.
constexpr size_t kWords = 1u << 14,
                 kBits = 64;  // more than the default descriptor limit of any system
std::array<std::atomic<uint64_t>, kWords> stopped{};
std::atomic<size_t> words{0};  // words in use; words after them have no bit set

bool has_place(int descriptor) noexcept {
  return descriptor >= 0 && static_cast<size_t>(descriptor) < kWords * kBits;
}
std::atomic<uint64_t>& word_of(int descriptor) noexcept {
  return stopped[static_cast<size_t>(descriptor) / kBits];
}
uint64_t bit_of(int descriptor) noexcept {
  return uint64_t{1} << static_cast<size_t>(descriptor) % kBits;
}

int open_nothing() noexcept { return ::open("/dev/null", O_RDWR | O_CLOEXEC); }

// Replaces all registered descriptors, in the child. Only async-signal-safe functions may be called
// here.
void stop_all() noexcept {
  int nothing = open_nothing();
  bool is_one = false;  // whether /dev/null was opened at a registered descriptor
  for (size_t word = 0; word < words.load(); ++word)
    for (uint64_t bits = stopped[word].exchange(0); bits != 0; bits &= bits - 1) {
      const int descriptor = static_cast<int>(word * kBits) + std::countr_zero(bits);
      if (nothing < 0) {  // no descriptor is left: closing this one makes room
        ::close(descriptor);
        nothing = open_nothing();
        is_one = nothing == descriptor;
      }
      if (nothing >= 0 && nothing != descriptor) ::dup3(nothing, descriptor, O_CLOEXEC);
    }
  if (nothing >= 0 && !is_one) ::close(nothing);
}

const int registered = ::pthread_atfork(nullptr, nullptr, stop_all);

}  // namespace

void set_close_on_fork(int descriptor) noexcept {
  static_cast<void>(registered);
  if (!has_place(descriptor)) return;
  const size_t wanted = static_cast<size_t>(descriptor) / kBits + 1;
  for (size_t now = words.load(); now < wanted && !words.compare_exchange_weak(now, wanted);) {
  }
  word_of(descriptor).fetch_or(bit_of(descriptor));
}

int close_descriptor(int descriptor) noexcept {
  if (has_place(descriptor) && (word_of(descriptor).load() & bit_of(descriptor)) != 0)
    word_of(descriptor).fetch_and(~bit_of(descriptor));
  return ::close(descriptor);
}

}  // namespace torch::comms::base
