#pragma once

// The older include path.
#include <torchcomms/base/env.hpp>
#include <torchcomms/base/launcher.hpp>
