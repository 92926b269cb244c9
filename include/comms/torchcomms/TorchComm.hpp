#pragma once

// The older include path.
#include <torchcomms/comm.hpp>
