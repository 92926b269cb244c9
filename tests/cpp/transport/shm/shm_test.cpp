#include "transport/conformance.hpp"
#include "transport/shm/shm_transport.hpp"

namespace torch::comms::transport::test {
namespace {

Link shm(const char* name, const shm::RingShape& ring, bool single_copy) {
  return {name, 3, [=](const TransportOptions& options) {
            shm::ShmOptions all{options};
            all.ring = ring;
            all.single_copy = single_copy;
            return make_shm_transport(all);
          }};
}

INSTANTIATE_TEST_SUITE_P(Shm, Conformance,
                         testing::Values(shm("as_it_is", {256, 0, 0}, true),
                                         shm("tiny_rings", {8, 4096, 1024}, false)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace torch::comms::transport::test
