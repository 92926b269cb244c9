#include "transport/fault_plans.hpp"
#include "transport/self_transport.hpp"

namespace torch::comms::transport::test {
namespace {

TEST(SelfFaults, AThousandRandomPlansEndRightOrWithATypedError) {
  run_fault_plans({"self", 1, [](const auto& options) { return make_self_transport(options); }},
                  1000, 300, false);
}

}  // namespace
}  // namespace torch::comms::transport::test
