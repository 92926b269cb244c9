#include "transport/connect/endpoint.hpp"

#include <unistd.h>

#include <torchcomms/base/error.hpp>

#include "base/os/host.hpp"
#include "base/text/hash.hpp"
#include "transport/byte_stream.hpp"

namespace torch::comms::transport {
namespace {

constexpr uint32_t kMagic = 0x50454354;  // "TCEP"
// The version of this text and of everything that ranks exchange over their connections.
constexpr uint16_t kVersion = 5;
constexpr uint8_t kMaxAddresses = 32;

// Returns: a hash of secret and text, which shows whether an endpoint is of another job or damaged.
uint64_t keyed_hash(std::string_view text, const Secret& job) {
  uint64_t hash = base::kFnvOffsetBasis;
  for (const auto byte : job) hash = base::fnv1a_add_byte(hash, static_cast<uint8_t>(byte));
  for (const char byte : text) hash = base::fnv1a_add_byte(hash, static_cast<uint8_t>(byte));
  return hash;
}

std::string link_of(const char* path) {
  char text[128] = "";
  const auto size = ::readlink(path, text, sizeof text);
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : std::string("?");
}

}  // namespace

std::string serialize(const Endpoint& endpoint, const Secret& job) {
  if (endpoint.addresses.size() > kMaxAddresses)
    throw CommError(Errc::kTooLarge, "endpoint has " + std::to_string(endpoint.addresses.size()) +
                                         " addresses; at most 32 are allowed");
  ByteWriter body;
  body.text(endpoint.link).add(static_cast<int32_t>(endpoint.rank)).add(endpoint.instance);
  body.text(endpoint.host).add(static_cast<uint8_t>(endpoint.addresses.size()));
  for (const auto& address : endpoint.addresses) body.text(address);
  const auto text = body.release();
  ByteWriter whole;
  whole.add(kMagic).add(kVersion).add(keyed_hash(text, job)).text(text);
  auto bytes = whole.release();
  if (bytes.size() > kMaxEndpointBytes)
    throw CommError(Errc::kTooLarge, "endpoint has " + std::to_string(bytes.size()) +
                                         " bytes; at most " + std::to_string(kMaxEndpointBytes) +
                                         " are allowed");
  return bytes;
}

Endpoint parse_endpoint(std::string_view text, const Secret& job) {
  if (text.size() > kMaxEndpointBytes)
    throw CommError(Errc::kTooLarge, "endpoint has " + std::to_string(text.size()) +
                                         " bytes; at most " + std::to_string(kMaxEndpointBytes) +
                                         " are allowed");
  ByteReader whole(text, "endpoint");
  whole.require(whole.number<uint32_t>() == kMagic, "not an endpoint");
  whole.require(whole.number<uint16_t>() == kVersion,
                "made by another torchcomms version; all ranks must run the same version");
  const auto expected_hash = whole.number<uint64_t>();
  const auto inner = whole.text();
  whole.require(whole.is_at_end(), "unexpected bytes after the end");
  whole.require(keyed_hash(inner, job) == expected_hash, "belongs to another job, or is damaged");

  ByteReader body(inner, "endpoint");
  Endpoint endpoint;
  endpoint.link = body.text();
  endpoint.rank = body.number<int32_t>();
  endpoint.instance = body.number<uint64_t>();
  endpoint.host = body.text();
  const auto addresses = body.number<uint8_t>();
  body.require(addresses <= kMaxAddresses, "too many addresses");
  for (int i = 0; i < addresses; ++i) endpoint.addresses.push_back(body.text());
  body.require(body.is_at_end() && endpoint.rank >= 0, "damaged");
  return endpoint;
}

std::string host_identity() {
  return base::loopback_identity() + "/" + link_of("/proc/self/ns/pid");
}

}  // namespace torch::comms::transport
