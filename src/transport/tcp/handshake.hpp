#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/handles.hpp"
#include "transport/endpoint.hpp"

namespace torch::comms::transport::tcp {

// The first bytes on every socket, from whoever connects.
struct Hello {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint8_t lane = 0, lanes = 1;
  int32_t from = -1, to = -1;
  uint64_t instance = 0;  // of the transport it means
  uint64_t attempt = 0;   // random: sockets with the same one make one connection
  Secret job = {};

  static constexpr uint32_t kMagic = 0x50435454;  // "TTCP"
  static constexpr uint16_t kVersion = 2;
};
static_assert(sizeof(Hello) == 48 && std::has_unique_object_representations_v<Hello>);

inline constexpr unsigned kMaxLanes = 8;

// The answer on each socket, once all of them are there.
struct Welcome {
  uint32_t magic = Hello::kMagic;
  uint16_t version = Hello::kVersion;
  uint16_t spare = 0;
};
static_assert(sizeof(Welcome) == 8 && std::has_unique_object_representations_v<Welcome>);

// Why `welcome` is none: by something else, or of another version. Empty if it is one.
TC_API std::string why_not(const Welcome& welcome);

// Who may come.
struct Door {
  int rank = 0;
  uint64_t instance = 0;
  Secret job = {};
};

// nullptr if `hello` may come in, else why not. Looks at nothing but what it is given.
TC_API const char* why_not(const Hello& hello, const Door& door) noexcept;

// A connection of a stranger: at most one ShmHello is read from it.
class Guest {
 public:
  explicit Guest(base::FileDescriptor socket) noexcept : socket_(std::move(socket)) {}
  enum class State : uint8_t { kNotYet, kWhole, kGone };
  State read() noexcept;
  const Hello& hello() const noexcept { return hello_; }
  int socket() const noexcept { return socket_.get(); }
  base::FileDescriptor take() noexcept { return std::move(socket_); }

 private:
  base::FileDescriptor socket_;
  Hello hello_;
  size_t have_ = 0;
};

}  // namespace torch::comms::transport::tcp
