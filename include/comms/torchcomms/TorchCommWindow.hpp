#pragma once

// The older include path.
#include <torchcomms/window.hpp>
