// A backend in a shared library, as somebody outside the project would write one. Built several
// times: right, and wrong in one way each.
#include <torchcomms/factory.hpp>

#include "backends/fake/fake_backend.hpp"

namespace {

torch::comms::TorchCommBackend* make() { return new torch::comms::TorchCommFake; }
[[maybe_unused]] void destroy(torch::comms::TorchCommBackend* backend) { delete backend; }

#ifdef TC_TEST_WRONG_VERSION
const char* version() { return "tc0+torch1.0"; }
#else
const char* version() { return TORCHCOMM_BACKEND_ABI_VERSION; }
#endif

}  // namespace

#ifdef TC_TEST_NULL_POINTER
#define TC_TEST_DESTROY nullptr
#else
#define TC_TEST_DESTROY &destroy
#endif

#ifndef TC_TEST_NO_SYMBOL
#define TC_TEST_SYMBOL create_dynamic_loader_fake_test
#else
#define TC_TEST_SYMBOL some_other_function
#endif

extern "C" TC_API torch::comms::DynamicLoaderInterface TC_TEST_SYMBOL() {
  return {&make, TC_TEST_DESTROY, &version};
}
