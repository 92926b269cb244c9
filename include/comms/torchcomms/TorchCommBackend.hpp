#pragma once

// The older include path.
#include <torchcomms/factory.hpp>
