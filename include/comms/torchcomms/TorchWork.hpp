#pragma once

// The older include path.
#include <torchcomms/work.hpp>
