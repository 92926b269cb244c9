#include "transport/self_transport.hpp"

#include "transport/conformance_streams.hpp"
#include "transport/conformance_windows.hpp"

namespace torch::comms::transport::test {

INSTANTIATE_TEST_SUITE_P(Self, Conformance,
                         testing::Values(Link{"self", 1, [](const auto& options) {
                                                return make_self_transport(options);
                                              }}));

}  // namespace torch::comms::transport::test
