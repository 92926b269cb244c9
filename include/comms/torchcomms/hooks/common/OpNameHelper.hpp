#pragma once

// The older include path.
#include <torchcomms/operation.hpp>
