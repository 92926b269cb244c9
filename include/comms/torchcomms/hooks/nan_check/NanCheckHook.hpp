#pragma once

// The older include path.
#include <torchcomms/hooks/nan_check.hpp>
