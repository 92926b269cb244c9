#pragma once

// The older include path.
#include <torchcomms/health_check.hpp>
