#pragma once

// The older include path.
#include <torchcomms/hooks/clog.hpp>
