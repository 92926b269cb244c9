#pragma once

// The older include path.
#include <torchcomms/options.hpp>
