#pragma once

// The older include path.
#include <torchcomms/backend_wrapper.hpp>
