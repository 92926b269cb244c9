#include "core/rendezvous/init_handle.hpp"

#include <array>
#include <charconv>
#include <tuple>

#include <torchcomms/base/error.hpp>

#include "base/text/hash.hpp"
#include "base/text/utf8.hpp"

namespace torch::comms {
namespace {

constexpr size_t kMostBytes = 512;
constexpr const char* kUnknown = "-1";
constexpr const char* kAt = "@";  // host names do not contain it
constexpr int kHex = 16;
constexpr size_t kHexDigits = 16;

std::string hex(uint64_t number) {
  std::array<char, kHexDigits> digits;
  digits.fill('0');
  for (auto digit = digits.rbegin(); number != 0; ++digit, number >>= 4)
    *digit = "0123456789abcdef"[number & 15];
  return {digits.data(), digits.size()};
}

template <class Number>
bool read(std::string_view text, Number& number, int base = 10) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number, base);
  return !text.empty() && error == std::errc{} && stop == end;
}

bool read_hex(std::string_view text, uint64_t& number) {
  return text.size() == kHexDigits && read(text, number, kHex);
}

std::string_view take_first(std::string_view& text) {
  const auto colon = text.find(':');
  const auto field = text.substr(0, colon);
  text.remove_prefix(colon == std::string_view::npos ? text.size() : colon + 1);
  return field;
}

std::string_view take_last(std::string_view& text) {
  const auto colon = text.rfind(':');
  const auto field = colon == std::string_view::npos ? text : text.substr(colon + 1);
  text.remove_suffix(colon == std::string_view::npos ? text.size() : text.size() - colon);
  return field;
}

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw CommError(Errc::kInvalidArgument,
                  "the init handle '" + std::string(base::utf8_prefix(text, 80)) + "' " + why);
}

}  // namespace

InitHandle InitHandleInfo::to_text() const {
  return backend + ":" + std::to_string(rank) + ":" + std::to_string(uuid) + ":" +
         (host.empty() ? kUnknown : host) + (loopback == 0 ? "" : kAt + hex(loopback)) + ":" +
         std::to_string(port) + ":" + std::to_string(kVersion) + ":" + hex(identity);
}

void InitHandleInfo::set_store_address(std::string_view address) {
  constexpr std::string_view kTcp = "tcp://";
  if (!address.starts_with(kTcp)) return;
  address.remove_prefix(kTcp.size());
  TC_CHECK(read(take_last(address), port));
  host = address;
}

InitHandleInfo parse_init_handle(std::string_view text, std::string_view backend) {
  InitHandleInfo handle;
  int version = 0;
  auto rest = text;
  handle.backend = take_first(rest);
  if (handle.backend != backend)
    refuse(text, "is not one of backend '" + std::string(backend) + "'");
  const auto rank = take_first(rest), uuid = take_first(rest);
  const auto identity = take_last(rest), its_version = take_last(rest), port = take_last(rest);
  bool is_location_valid = true;
  if (const auto at = rest.find(kAt); at != std::string_view::npos) {
    is_location_valid = read_hex(rest.substr(at + 1), handle.loopback) && handle.loopback != 0 &&
                        rest.substr(0, at) != kUnknown && !port.starts_with('-');
    rest = rest.substr(0, at);
  }
  const bool whole = text.size() <= kMostBytes && read(rank, handle.rank) &&
                     read(uuid, handle.uuid) && read(port, handle.port) &&
                     read(its_version, version) && read_hex(identity, handle.identity) &&
                     is_location_valid && handle.rank >= -1 && handle.port >= -1 &&
                     handle.port <= UINT16_MAX && !rest.empty();
  if (!whole) refuse(text, "is not what get_init_handle() returns");
  if (version != InitHandleInfo::kVersion)
    refuse(text, "is of protocol version " + std::to_string(version) +
                     "; this build supports version " + std::to_string(InitHandleInfo::kVersion));
  if (rest != kUnknown) handle.host = rest;
  return handle;
}

bool InitHandleInfo::has_same_address(const InitHandleInfo& other) const noexcept {
  return !host.empty() && host == other.host && port == other.port && loopback == other.loopback;
}

bool is_ordered_before(const InitHandleInfo& a, const InitHandleInfo& b) noexcept {
  const auto order = [](const InitHandleInfo& one) {
    return std::tuple(one.rank < 0, one.rank, one.identity);
  };
  return order(a) < order(b);
}

uint64_t ReconfigureMembers::list_hash() const noexcept {
  uint64_t hash = base::kFnvOffsetBasis;
  for (const auto& handle : handles) hash = base::fnv1a_add(hash, handle.identity);
  return hash;
}

uint64_t ReconfigureMembers::identity() const noexcept {
  return base::fnv1a_add(list_hash(), static_cast<uint64_t>(uuid));
}

}  // namespace torch::comms
