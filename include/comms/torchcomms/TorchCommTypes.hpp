#pragma once

// The older include path.
#include <torchcomms/types.hpp>
